"""The report as Markdown: the same sections and tables, without pictures; for a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterator

from genaccel.report.html import Content
from genaccel.report.parts import Cell, Facts, Heading, Picture, Table

LEGEND = "(p) marks what was predicted, (pub) what others published; the rest was measured. A dash is unknown."


def to_markdown(content: Content) -> str:
    """All rows of all tables, every protocol of the first, environments and warnings."""
    lines = ["# genaccel report", "", f"{len(content.records):,} records. {LEGEND}", ""]
    for section in content.sections:
        lines += [f"## {section.title}", "", *(escaped(note) + "\n" for note in section.notes)]
        for part in section.parts:
            if isinstance(part, Table):
                lines += [*_table(part), ""]
            elif isinstance(part, Heading):
                lines += [f"### {part.title}", "", *(escaped(note) + "\n" for note in part.notes)]
            elif isinstance(part, Facts):
                lines += [f"- {escaped(name)}: {escaped(value)}" for name, value in part.facts] + [""]
            elif isinstance(part, Picture):
                lines += [f"*{escaped(part.title)}: in the HTML report, and as PDF with --figures.*", ""]
    if content.warnings or content.problems:
        lines += ["## Warnings", "", *(f"- {escaped(text)}" for text in (*content.problems, *content.warnings)), ""]
    lines += ["## Protocols", "", *_protocols(content), "", "## Environments", "", *_places(content), ""]
    return "\n".join(lines)


def _table(table: Table) -> Iterator[str]:
    for group in table.groups:
        if group.title:
            yield from (f"**{escaped(group.title)}** {escaped(group.about)}", "")
        yield "| " + " | ".join(escaped(c.title) for c in table.columns) + " |"
        yield "|" + "|".join("---:" if c.numeric else "---" for c in table.columns) + "|"
        for row in group.rows:
            yield "| " + " | ".join(_cell(c) for c in row.cells) + " |"
        yield ""


def _cell(cell: Cell) -> str:
    links = " ".join(text for _, text in cell.links)
    more = " ".join(filter(None, (cell.small, links)))
    return escaped(cell.plain + (f" ({more})" if more else ""))


def _protocols(content: Content) -> Iterator[str]:
    for (figure, protocol), number in content.anchors.protocols.items():
        yield f"- §{number} {escaped(figure)}: {escaped(protocol)}"


def _places(content: Content) -> Iterator[str]:
    for place in content.places.values():
        e = place.environment
        software = ", ".join(f"{name} {version}" for name, version in e.packages.items())
        parts = (
            f"{e.num_devices} × {e.accelerator or e.device}",
            e.host_cpu,
            f"Python {e.python}",
            software,
            e.git_commit,
        )
        yield f"- env. {place.number}: {escaped('; '.join(filter(None, parts)))} ({place.num_records} records)"


def escaped(text: str) -> str:
    """Text that Markdown and any HTML in it leave as it is, on one line."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text)
