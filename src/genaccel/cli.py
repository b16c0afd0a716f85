"""The command line: parse, call one function, print. The commands are in ``commands/``."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import CycloptsError, Parameter, UnknownOptionError
from cyclopts.config import Toml

from genaccel import console
from genaccel.commands import app
from genaccel.errors import UserError
from genaccel.origins import note_origins

# --- Starting ----------------------------------------------------------------------------------------------------------


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    json: bool = False,
) -> Any:
    """Run a command.

    Parameters
    ----------
    config
        TOML file with values for the command's options; flags override it.
    json
        Print the result as JSON.
    """
    console.json_mode = json
    if config is not None and not config.is_file():
        raise UserError(f"There is no run file {config}.", "Check --config.")
    file = [Toml(config, must_exist=True, use_commands_as_keys=False)] if config else []
    app.config = (*file, note_origins)
    try:
        # Taken here, not by cyclopts: what follows 'check' are another command's flags.
        if tokens[:1] == ("check",) and not {"--help", "-h"} & set(tokens):
            from genaccel.commands.results import check_run

            return check_run(tokens[1:])
        return app(tokens, exit_on_error=False, print_error=False)
    finally:
        app.config = ()


def main() -> None:
    """Entry point: exit code 0, 2 for a mistake with a hint, 130 for Ctrl-C, 143 when told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that temporary files go
    try:
        app.meta(sys.argv[1:], exit_on_error=False, print_error=False)
    except UserError as error:
        console.fail(error)
        sys.exit(error.exit_code)
    except CycloptsError as error:
        console.fail(_usage_error(error))
        sys.exit(2)
    except KeyboardInterrupt:
        console.note(
            "Interrupted; nothing half-written was left.\nhint: Run it again: what was evaluated or saved is not done twice."
        )
        sys.exit(130)
    except MemoryError:
        console.fail(UserError("The memory of this machine does not suffice.", "Use a smaller model or window."))
        sys.exit(2)


def _usage_error(error: CycloptsError) -> UserError:
    message = " ".join(str(error).split())
    hint = "Run 'genaccel --help', or add --help to the command."
    if isinstance(error, UnknownOptionError):
        message = message.replace(" Did you mean", "\nDid you mean")
        message, _, suggestion = message.partition("\n")
        hint = suggestion or hint
    return UserError(message, hint)
