"""Models that are folders or files, by their last name rather than the whole path."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from genaccel.records import Record


def with_short_names(records: Sequence[Record]) -> list[Record]:
    """``records`` with paths in ``model`` and ``label`` cut to as much of their end as tells them apart.

    The settings of a record, shown beside it, keep the path.
    """
    short = short_paths(r.model for r in records)
    return [
        replace(r, model=short[r.model], label=r.label.replace(r.model, short[r.model])) if r.model in short else r
        for r in records
    ]


def short_paths(names: Iterable[str]) -> dict[str, str]:
    """Short names of those of ``names`` that are absolute or relative paths; ``owner/name`` is a hub id and no path."""
    whole = set(names)
    paths = {
        n: PurePath(n).relative_to(PurePath(n).anchor).parts for n in whole if n.startswith(("/", "./", "../", "~"))
    }
    found: dict[str, str] = {}
    for name, parts in paths.items():
        ends = ("/".join(parts[-n:]) for n in range(1, len(parts) + 1))
        taken = {other for other in whole if other != name}
        found[name] = next((end for end in ends if not any(f"/{o}".endswith(f"/{end}") for o in taken)), name)
    return found
