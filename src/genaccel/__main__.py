"""``python -m genaccel``."""

from genaccel.cli import main

main()
