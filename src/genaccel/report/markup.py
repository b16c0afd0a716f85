"""Rows of tables as HTML. In Python, for the template engine takes five times as long over a hundred thousand cells.

Every text goes through ``escape``; nothing else than the text of this file is markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from genaccel.report.parts import KIND_TAGS, Cell, Column, Row, RowGroup, Table


def bodies(table: Table, half: Sequence[tuple[int, RowGroup, list[tuple[int, Row]]]]) -> Markup:
    """The groups of ``half`` with their rows, as ``<tbody>`` elements."""
    return Markup("\n".join(_lines(table, half)))


def _lines(table: Table, half: Sequence[tuple[int, RowGroup, list[tuple[int, Row]]]]) -> Iterator[str]:
    for number, group, rows in half:
        yield f'<tbody data-group="{number}">'
        if group.title:
            about = f" <small>{escape(group.about)}{_links(group.links)}</small>" if group.about or group.links else ""
            yield (
                f'<tr class="group"><th scope="rowgroup" colspan="{len(table.columns)}"><div>'
                f"<b>{escape(group.title)}</b>{about}</div></th></tr>"
            )
        for place, row in rows:
            yield _row(table.columns, place, row)
        yield "</tbody>"


def _row(columns: Sequence[Column], place: int, row: Row) -> str:
    tags = "".join(f' data-{name}="{escape(value)}"' for name, value in row.tags.items())
    first = f'<th scope="row">{_inside(row.cells[0], columns[0])}</th>'
    cells = "".join(_cell(c, column) for c, column in zip(row.cells[1:], columns[1:], strict=True))
    return f'<tr data-i="{place}" data-words="{escape(row.words)}"{tags}>{first}{cells}</tr>'


def _cell(cell: Cell, column: Column) -> str:
    look = "n" if column.numeric else column.look
    attributes = f' class="{look}"' if look else ""
    if cell.title:
        attributes += f' title="{escape(cell.title)}"'
    if cell.value is not None:
        attributes += f' data-v="{cell.value!r}"'
    return f"<td{attributes}>{_inside(cell, column)}</td>"


def _inside(cell: Cell, column: Column) -> str:
    text = str(escape(cell.text))
    if cell.code:
        text = f"<code>{text}</code>"
    elif column.numeric and not cell.kind and cell.value is None:
        text = f'<span class="none">{text}</span>'
    if cell.to:
        text = f'<a href="#{escape(cell.to)}">{text}</a>'
    if column.numeric:
        text += f'<i class="k {escape(cell.kind)}">{KIND_TAGS.get(cell.kind, "")}</i>'
    if cell.small or cell.links:
        text += f"<small>{escape(cell.small)}{_links(cell.links, bool(cell.small))}</small>"
    return text


def _links(links: Sequence[tuple[str, str]], apart: bool = True) -> str:
    return "".join(f'{" " if apart else ""}<a href="#{escape(to)}">{escape(text)}</a>' for to, text in links)
