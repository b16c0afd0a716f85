"""The one exception that is meant for a person: a sentence about what is wrong and a hint at what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake or a limit that the user can do something about.

    The command line prints ``message`` and ``hint`` without a traceback and exits with ``exit_code``.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


def reason_of(error: BaseException) -> str:
    """Somebody else's error as a phrase: its first line, and the next one where the first only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return f"{type(error).__name__} {text}" if isinstance(error, KeyError) else text.rstrip(".")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint that offers the nearest known names, or lists them all when none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join(names)}." if names else "None is known."


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """The error for a name that no table has, e.g. ``unknown('format', 'int9', FORMATS)``."""
    return UserError(f"There is no {kind} '{name}'.", did_you_mean(name, known))
