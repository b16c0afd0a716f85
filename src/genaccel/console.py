"""The only module that prints: tables and results on standard output, progress and notes on standard error.

With ``--json`` standard output carries exactly one JSON document and nothing else.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from genaccel.errors import UserError

json_mode = False
muted = False
"""Set in all processes of a run but the first: what they would say has been said."""


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True, quiet=muted)


def note(text: str) -> None:
    """One line about what is being done or was chosen."""
    _stderr().print(text, markup=False)


def warn(text: str) -> None:
    """One line about something that may mislead."""
    _stderr().print(f"warning: {text}", style="yellow", markup=False)


def fail(error: UserError) -> None:
    """What is wrong and what to do."""
    console = _stderr()
    console.print(f"error: {error.message}", style="bold red", markup=False)
    if error.hint:
        console.print(f"hint: {error.hint}", markup=False)


def emit(document: Any, text: Callable[[], None]) -> None:
    """A command's result: ``document`` as JSON under ``--json``, otherwise what ``text`` prints."""
    if muted:
        return
    if json_mode:
        sys.stdout.write(json.dumps(document, indent=1, allow_nan=False, ensure_ascii=False) + "\n")
    else:
        text()


def say(text: str) -> None:
    """One line of a command's result."""
    sys.stdout.write(text + "\n")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    """An aligned table; ``right`` lists the columns that hold numbers."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        drawn.add_column(Text(column), justify="right" if index in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = max(out.width, 160)  # a log file or a pipe has no width to fold to
    out.print(drawn)


@contextmanager
def status(text: str) -> Iterator[None]:
    """A spinner for work whose length is not known."""
    console = _stderr()
    if not console.is_terminal:
        console.print(text, markup=False)
        yield
        return
    with console.status(text):
        yield


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[str], None]]:
    """A bar with an estimate of the time left; the yielded function advances it by one and may show a detail.

    Off a terminal it prints a line when it starts and then at most one every ten seconds.
    """
    import time

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = _stderr()
    if console.is_terminal:
        columns = (
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(text, total=total, detail="")

            def show(detail: str = "") -> None:
                bar.update(task, advance=1, detail=detail)

            yield show
        return
    done, begin = 0, time.monotonic()
    last = begin
    console.print(f"{text}: 0/{total}", markup=False)

    def advance(detail: str = "") -> None:
        nonlocal done, last
        done += 1
        now = time.monotonic()
        if now - last >= 10:
            last = now
            left = (now - begin) / done * (total - done)
            console.print(f"{text}: {done}/{total}, about {left:.0f} s left {detail}".rstrip(), markup=False)

    yield advance


def format_bytes(count: float) -> str:
    """Bytes with a decimal unit (1 MB = 10^6 bytes)."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
