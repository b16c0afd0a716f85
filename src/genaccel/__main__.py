"""``genaccel``, and ``python -m genaccel``."""

import gc


def start() -> None:
    """Load the command line and run it.

    Modules leave much behind and no garbage: a collector that looks for some meanwhile takes 5 % of ``--help``'s time.
    """
    gc.disable()
    from genaccel.cli import main

    gc.freeze()
    gc.enable()
    main()


if __name__ == "__main__":
    start()
