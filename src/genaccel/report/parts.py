"""What a report is made of: sections of tables, pictures and lists, as plain data. How they look is the template's business.

Whatever a cell holds is text from a record, and untrusted; markup is made by the template alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from genaccel.compare.numbers import known
from genaccel.console import format_bytes
from genaccel.hardware import accelerator_of
from genaccel.records import Record
from genaccel.report.drawing import Drawing

DASH = "–"
KIND_TAGS = {"measured": "m", "predicted": "p", "published": "pub"}
MAX_ROWS = 250  # of a table that stand in the page as they are; the others are packed and unpacked by the script
MAX_CHOICES = 60  # values that can be chosen from a list


@dataclass(frozen=True)
class Cell:
    """Text, what hovering over it says, its kind where it is a number; ``value`` sorts it.

    ``small`` stands below the text, ``links`` are (anchor, text) after that, ``to`` is the anchor of the text itself.
    """

    text: str
    title: str = ""
    kind: str = ""
    value: float | None = None
    small: str = ""
    links: tuple[tuple[str, str], ...] = ()
    code: bool = False
    to: str = ""

    @property
    def plain(self) -> str:
        """As text: (p) marks a predicted number, (pub) a published one."""
        return self.text + (f" ({KIND_TAGS[self.kind]})" if self.kind not in ("", "measured") else "")


UNKNOWN = Cell(DASH, "unknown")


@dataclass(frozen=True)
class Column:
    """Its title, whether it holds numbers, what it means, and a class of its own for its look."""

    title: str
    numeric: bool = False
    about: str = ""
    look: str = ""


@dataclass(frozen=True)
class Row:
    """Cells, the first of which names the row; ``age`` tells which are the latest, ``tags`` can be chosen from lists."""

    cells: tuple[Cell, ...]
    age: tuple[str, str] = ("", "")
    tags: Mapping[str, str] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class RowGroup:
    """Rows whose numbers may be compared with each other, under a heading; '' for a table that has no groups."""

    title: str
    rows: tuple[Row, ...]
    about: str = ""
    links: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Table:
    """A table that can be sorted and filtered; rows move inside their group only."""

    id: str
    caption: str
    columns: tuple[Column, ...]
    groups: tuple[RowGroup, ...]
    choices: tuple[str, ...] = ()
    part: Literal["table"] = "table"

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        return sum(len(g.rows) for g in self.groups)

    def split(self) -> tuple[list[tuple[int, RowGroup, list[tuple[int, Row]]]], ...]:
        """(number, group, [(place, row)]) twice: those to show at once, the latest, and those to pack."""
        latest = sorted((row.age, n, i) for n, g in enumerate(self.groups) for i, row in enumerate(g.rows))[-MAX_ROWS:]
        shown = {(n, i) for _, n, i in latest}
        halves = []
        for wanted in (True, False):
            half = [
                (n, g, [(i, row) for i, row in enumerate(g.rows) if ((n, i) in shown) is wanted])
                for n, g in enumerate(self.groups)
            ]
            halves.append([h for h in half if h[2]])
        return tuple(halves)

    def values(self, choice: str) -> list[str]:
        """What can be chosen; nothing when there is no choice, or too much of it."""
        found = sorted({v for g in self.groups for row in g.rows if (v := row.tags.get(choice, ""))})
        return found if 1 < len(found) <= MAX_CHOICES else []


@dataclass(frozen=True)
class Picture:
    """A drawing, what it shows, the record it is drawn from (None for several), and sentences that explain it."""

    title: str
    record: Record | None
    notes: tuple[str, ...]
    drawing: Drawing
    part: Literal["picture"] = "picture"


@dataclass(frozen=True)
class Gallery:
    """Small PNG pictures (base64) with captions, of one record."""

    title: str
    record: Record
    images: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    part: Literal["gallery"] = "gallery"


@dataclass(frozen=True)
class Heading:
    """A heading inside a section, and sentences below it."""

    id: str
    title: str
    notes: tuple[str, ...] = ()
    part: Literal["heading"] = "heading"


@dataclass(frozen=True)
class Facts:
    """Terms and what is said of them."""

    facts: tuple[tuple[str, str], ...]
    part: Literal["facts"] = "facts"


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading of its own; the navigation leads there."""

    id: str
    title: str
    notes: tuple[str, ...]
    parts: tuple[Any, ...]


class Anchors:
    """Names of places in the page: records, environments and protocols, numbered as they are first asked for."""

    def __init__(self, detailed: Iterable[Record]) -> None:
        self.records = {r.id: f"record-{number}" for number, r in enumerate(detailed, 1)}
        self.places: dict[str, str] = {}
        self.protocols: dict[tuple[str, str], int] = {}

    def protocol(self, figure: str, protocol: str) -> int:
        """The number of a protocol, which is listed at the end of the page."""
        return self.protocols.setdefault((figure, protocol), len(self.protocols) + 1)

    def record_cell(self, record: Record) -> Cell:
        """The record's id, leading to its details where they are in the page; its warnings."""
        count = len(record.warnings)
        links = (("warnings", f"{count} warning{'s' if count > 1 else ''}"),) if count else ()
        return Cell(record.id, "", code=True, to=self.records.get(record.id, ""), links=links)

    def place_cell(self, record: Record, key: str) -> Cell:
        """Where the record ran, leading to that environment."""
        environment = record.environment
        many = f"{environment.num_devices} × " if environment.num_devices > 1 else ""
        anchor = self.places.get(key, "")
        links = ((anchor, f"env. {anchor.rpartition('-')[2]}"),) if anchor else ()
        card = accelerator_of(environment.accelerator)
        return Cell(many + (card.name if card else environment.device or DASH), environment.accelerator, links=links)


SHOW: dict[str, str] = {
    "tokens/s": "{:,.1f}", "images/s": "{:,.2f}", "s": "{:.3f}", "x": "{:.2f}x", "nats": "{:.4f}", "dB": "{:.2f}",
}  # fmt: skip


def number_cell(record: Record, name: str, show: str | None = None) -> Cell:
    """A figure of ``record`` with its kind, protocol, note and spread; a dash when it is unknown."""
    number, figure = known(record, name), record.figure(name)
    if number is None or figure is None:
        return Cell(DASH, f"unknown: {figure.note}" if figure is not None and figure.note else "unknown")
    title = "; ".join(part for part in (number.kind, number.protocol, number.note) if part)
    small = "" if number.spread is None else f"IQR {number.spread:.0%}"
    return Cell(show_number(number.value, figure.unit, show), title, number.kind, number.value, small)


def show_number(value: float, unit: str, show: str | None = None) -> str:
    """A value as its unit is read."""
    if show is not None:
        return show.format(value)
    if unit == "B":
        return format_bytes(value)
    if unit in ("tokens/s", "images/s") and abs(value) >= 1000:
        return f"{value:,.0f}"
    return SHOW.get(unit, "{:.4g}").format(value)


def one_group(rows: Sequence[Row]) -> tuple[RowGroup, ...]:
    """Rows without headings."""
    return (RowGroup("", tuple(rows)),) if rows else ()
