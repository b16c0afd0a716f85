"""Published rows that speak for a recommendation, by an id that finds them again: table, line."""

from __future__ import annotations

from functools import cache

from genaccel.predict.published_models import find_decoder
from genaccel.predict.rows import Row, Unpredictable, read_rows
from genaccel.predict.validate import published_files

TABLES = {"finetune": "training", "inference": "serving", "superres": "imaging"}


@cache
def _rows(workload: str) -> list[tuple[str, Row]]:
    """(id, row) of every published row of a workload."""
    found = []
    for path in published_files():
        for row in read_rows(path):
            if row.workload == TABLES[workload] and row.question and not row.suspect and not row.memory:
                found.append((f"published:{path.stem}:{row.number}", row))
    return found


def evidence_for(workload: str, device: str, model: str, strategy: str | None, num: int = 3) -> tuple[str, ...]:
    """Rows of the same device, those of the nearest model (by size) and of the same strategy first."""
    size = _size(model)
    scored = []
    for name, row in _rows(workload):
        assert row.question is not None
        asked = row.question.asked
        if asked.chip.name != device:
            continue
        other = getattr(getattr(asked, "model", None), "num_weights", None)
        far = abs(_log2(other / size)) if other and size else 0.0
        unlike = 0.0 if strategy is None or getattr(asked, "strategy", strategy) == strategy else 3.0
        scored.append((far + unlike, name, row))
    scored.sort(key=lambda entry: entry[:2])
    return tuple(f"{name} ({row.cells['model']}, {row.value:g} {row.cells['unit']})" for _, name, row in scored[:num])


def _log2(ratio: float) -> float:
    from math import log2

    return log2(ratio)


def _size(model: str) -> float | None:
    try:
        return float(find_decoder(model, None)[0].num_weights)
    except Unpredictable:
        return None
