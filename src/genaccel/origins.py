"""Where every value of a command's configuration came from: a flag, the run file, the environment or the default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cyclopts import App, ArgumentCollection

    from genaccel.records import Origin, Setting

# Filled while the command line of this process is parsed.
_origins: dict[str, Origin] = {}


def note_origins(_app: App, _commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Cyclopts calls this last: every argument that has a value by now got it from a flag or from the run file."""
    _origins.clear()
    for argument in arguments:
        for token in argument.tokens:
            name = argument.name.removeprefix("--").replace("-", "_").lower()
            _origins[name] = "flag" if token.source == "cli" else "file"


def setting(name: str, value: Any) -> Setting:
    """The value of one option with its origin."""
    from genaccel.records import Setting, stored  # not to be waited for by --help

    if name == "data_dir" and value is None and os.environ.get("GENACCEL_DATA"):
        return Setting(os.environ["GENACCEL_DATA"], "environment")
    return Setting(stored(value), _origins.get(name, "default"))


def settings(*configs: Any) -> dict[str, Setting]:
    """The values of configuration dataclasses with their origins."""
    return {name: setting(name, value) for config in configs for name, value in vars(config).items()}
