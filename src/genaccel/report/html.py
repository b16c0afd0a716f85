"""Records -> one self-contained HTML report: no request leaves it, and the same records give the same bytes.

Every number says whether it was measured, predicted or published, and by which protocol. Whatever a record holds is
untrusted text: the template escapes it, and a content security policy lets the file run and fetch nothing but its own
script. Of long tables the latest rows stand in the page; the others are packed into it, made by the same template, and
unpacked by the script. The details of old records are left out, and the page says so.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from genaccel import __version__
from genaccel.records import Record
from genaccel.report import evidence
from genaccel.report.comparisons import comparison_section
from genaccel.report.dust import superres_section
from genaccel.report.evidence import Place
from genaccel.report.markup import bodies
from genaccel.report.names import with_short_names
from genaccel.report.overview import Card, cards
from genaccel.report.parts import DASH, KIND_TAGS, MAX_ROWS, Anchors, Picture, Section
from genaccel.report.results import judging_section
from genaccel.report.rows import OtherRow, other_section
from genaccel.report.training import finetune_section
from genaccel.store import write_bytes, write_text

TEMPLATES = Path(__file__).parent / "templates"
MAX_DETAILED = 1000  # latest records with a section of their own; the others keep their row and their file
MAX_OPEN = 100  # of those, the latest, that stand in the page as they are
MAX_LISTED = 300  # warnings, environments and protocols that are listed


@dataclass(frozen=True)
class Content:
    """Everything that a report shows, whatever its form. Records are oldest first."""

    records: list[Record]
    sections: list[Section]
    cards: list[Card]
    places: dict[str, Place]
    anchors: Anchors
    warnings: dict[str, list[Record]]
    problems: list[str] = field(default_factory=list)

    def pictures(self) -> Iterator[Picture]:
        """All drawings in their order."""
        for section in self.sections:
            yield from (part for part in section.parts if isinstance(part, Picture))


def content_of(records: Sequence[Record], rows: Sequence[OtherRow] = ()) -> Content:
    """What there is to show. Neither the order of ``records`` nor the time of the call matters."""
    ordered = sorted({r.id: r for r in records}.values(), key=lambda r: (r.created, r.id))  # folders may overlap
    ordered = with_short_names(ordered)
    anchors, problems = Anchors(ordered[::-1][:MAX_DETAILED]), list[str]()
    places = evidence.places(ordered)
    anchors.places = {key: f"environment-{p.number}" for key, p in places.items() if p.number <= MAX_LISTED}
    makers: tuple[Callable[[], Section | None], ...] = (
        lambda: judging_section(ordered, anchors, problems),
        lambda: finetune_section(ordered, anchors),
        lambda: superres_section(ordered, anchors, problems),
        lambda: comparison_section(ordered, anchors),
        lambda: other_section(rows),
    )
    sections = [section for make in makers if (section := make()) is not None]
    warnings = evidence.warnings_by_text(ordered[::-1])
    return Content(ordered, sections, cards(ordered), places, anchors, warnings, problems)


def write_report(records: Sequence[Record], output: Path, rows: Sequence[OtherRow] = ()) -> None:
    """Write the report of ``records`` to ``output``, whole or not at all; ``UserError`` when it cannot be written."""
    write_text(output, render_report(records, rows))


def render_report(records: Sequence[Record], rows: Sequence[OtherRow] = ()) -> str:
    """The report as HTML text."""
    return render(content_of(records, rows))


def render(content: Content) -> str:
    """``content`` as HTML text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["packed"] = _packed
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    latest = content.records[::-1][:MAX_DETAILED]
    page = environment.get_template("page.html.j2").render(
        content=content,
        version=__version__,
        DASH=DASH,
        KIND_TAGS=KIND_TAGS,
        MAX_ROWS=MAX_ROWS,
        MAX_LISTED=MAX_LISTED,
        evidence=evidence,
        bodies=bodies,
        script=script,
        script_hash=_script_hash(script),
        css=(TEMPLATES / "style.css").read_text(encoding="utf-8"),
        open_records=latest[:MAX_OPEN],
        packed_records=latest[MAX_OPEN:],
    )
    # JSON can hold half a surrogate pair, which UTF-8 cannot.
    return page.encode("utf-8", "replace").decode("utf-8")


def write_figures(content: Content, folder: Path) -> list[Path]:
    """Every drawing as a PDF for a paper; returns the files."""
    written = []
    for number, picture in enumerate(content.pictures(), 1):
        name = re.sub(r"[^a-z0-9]+", "-", picture.drawing.title.lower()).strip("-")[:60]
        path = folder / f"{number:02d}-{name or 'figure'}.pdf"
        write_bytes(path, picture.drawing.pdf)
        written.append(path)
    return written


def _packed(html: str) -> str:
    """Markup of the template, deflated, in base64: what the script unpacks."""
    return base64.b64encode(zlib.compress(str(html).encode("utf-8", "replace"), 9)).decode("ascii")


def _script_hash(script: str) -> str:
    """The source expression that lets a content security policy run this very script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(str(script).encode()).digest()).decode()
