"""Predict published rows and compare: every row that can be, each without its group where the fit knew that group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from genaccel.predict.answers import MODELS, errors_like, model_of, on_several, seconds_of
from genaccel.predict.calibrate import problem_of, usable
from genaccel.predict.constants import Corrections, corrections_of
from genaccel.predict.fitting import Influence, Problem, linearize
from genaccel.predict.intervals import Interval, interval_for
from genaccel.predict.memory_rows import predicted_memory
from genaccel.predict.rows import Row, group_id, read_rows


@dataclass(frozen=True)
class Verdict:
    """A row beside its prediction. ``left_out`` says that its group was known to the fit, and left out of it here."""

    row: Row
    predicted: float
    low: float
    high: float
    basis: str
    left_out: bool

    @property
    def error(self) -> float:
        """Absolute error as a share of the published value."""
        return abs(self.predicted / self.row.value - 1)

    @property
    def inside(self) -> bool:
        """Whether the published value is in the 80 % interval."""
        return self.low <= self.row.value <= self.high


@dataclass
class Validation:
    """All verdicts, and the rows without one: ``refused`` with their reasons, ``suspect`` flagged in the table."""

    verdicts: list[Verdict] = field(default_factory=list)
    refused: list[Row] = field(default_factory=list)
    suspect: list[Row] = field(default_factory=list)
    num_rows: int = 0

    @property
    def share_predicted(self) -> float:
        """Of the rows that are not suspect."""
        sound = self.num_rows - len(self.suspect)
        return len(self.verdicts) / sound if sound else 0.0

    def by(self, key: Callable[[Row], str]) -> list[dict[str, Any]]:
        """A line for every value of ``key``: rows, share predicted, errors and how many are inside their interval."""
        rows = [v.row for v in self.verdicts] + self.refused
        lines = []
        for name in sorted({key(row) for row in rows}):
            mine = [v for v in self.verdicts if key(v.row) == name]
            total = len(mine) + sum(key(row) == name for row in self.refused)
            errors = [v.error for v in mine]
            lines.append(
                {
                    "name": name,
                    "rows": total,
                    "predicted": len(mine) / total,
                    "median_error": float(np.median(errors)) if errors else None,
                    "mean_error": float(np.mean(errors)) if errors else None,
                    "inside": sum(v.inside for v in mine) / len(mine) if mine else None,
                }
            )
        return lines


def published_files() -> list[Path]:
    """The published rows that come with the package."""
    folder = Path(str(resources.files("genaccel").joinpath("catalogue/published")))
    return [folder / name for name in ("training.csv", "inference.csv")]


MAKERS = {"cdna": "AMD", "gaudi": "Gaudi"}


def kind_of(row: Row) -> str:
    """What of workload, maker and number of cards decides how well a row can be predicted."""
    if row.question is None:
        return "not predicted"
    if row.memory:
        return "peak memory"
    asked = row.question.asked
    maker = MAKERS.get(asked.key.family, "NVIDIA")
    if row.workload == "serving":
        return f"LLM inference, {maker}, {'several cards' if on_several(asked) else 'one card'}"
    if row.workload == "imaging":
        return "training of diffusion models and CNNs" if getattr(asked, "trains", False) else "diffusion inference"
    if "bert" in row.cells["model"].lower():
        return "BERT"
    main = asked.key.device.startswith(("a100", "h100"))
    return f"LLM training, {'A100 and H100' if main else maker if maker == 'Gaudi' else 'other cards'}"


@dataclass
class Known:
    """The published rows that a time model was fitted to, linearized at the stored constants."""

    problem: Problem
    influence: Influence
    corrections: Corrections

    def without_group(self, group: str) -> Corrections:
        """The corrections as they would be had the fit never seen ``group``."""
        left_out = self.problem.groups == group
        found = self.problem.corrections(self.influence.without(np.flatnonzero(left_out)))
        # A stack or device that only this group has was then never seen, and its interval has to say so.
        seen = set(np.unique(self.problem.uses[self.problem.place[~left_out]]))
        found.values = {name: found.values[name] for name, i in self.problem.index.items() if i in seen}
        return found


@cache
def known_rows() -> dict[str, Known]:
    """What the stored constants were fitted to, by time model."""
    rows = [row for path in published_files() for row in read_rows(path)]
    found = {}
    for name, model in MODELS.items():
        mine = [row for row in usable(rows) if row.question and model_of(row.question.asked) is model]
        problem, corrections = problem_of(model, mine), corrections_of(model)
        influence = Influence.of(problem, linearize(problem, problem.start(corrections)))
        found[name] = Known(problem, influence, corrections)
    return found


def validate(rows: Sequence[Row]) -> Validation:
    """Every row predicted, refused with a reason, or set aside as suspect."""
    found = Validation(num_rows=len(rows))
    found.suspect = [row for row in rows if row.suspect]
    sound = [row for row in rows if not row.suspect]
    found.refused = [row for row in sound if row.question is None]
    askable = [row for row in sound if row.question is not None]
    found.verdicts = [_memory_verdict(row) for row in askable if row.memory]
    for name, model in MODELS.items():
        mine = [row for row in askable if not row.memory and row.question and model_of(row.question.asked) is model]
        known = known_rows()[name] if mine else None
        for group in sorted({row.group for row in mine}):
            assert known is not None
            members = [row for row in mine if row.group == group]
            fitted = bool((known.problem.groups == group).any())
            corrections = known.without_group(group) if fitted else known.corrections
            seconds = seconds_of([row.question.asked for row in members if row.question], corrections)
            found.verdicts += [
                _verdict(row, float(s), corrections, fitted) for row, s in zip(members, seconds, strict=True)
            ]
    return found


def _verdict(row: Row, seconds: float, corrections: Corrections, fitted: bool) -> Verdict:
    assert row.question is not None
    asked = row.question.asked
    approximate = bool(row.question.warnings)
    group = group_id(row.group) if fitted else None
    interval: Interval = interval_for(
        errors_like(asked), asked.key, on_several(asked), corrections, None, group, approximate
    )
    value = row.question.value(seconds)
    low, high = interval.around(value)
    basis = "; ".join((interval.basis, *row.question.warnings))
    return Verdict(row, value, low, high, basis, fitted)


def _memory_verdict(row: Row) -> Verdict:
    value, factor = predicted_memory(row)
    return Verdict(row, value, value / factor, value * factor, "memory of published runs", False)


def reason(verdict: Verdict) -> str:
    """What is known about why a prediction is far off."""
    seen = "too slow" if (verdict.predicted < verdict.row.value) == _is_rate(verdict.row) else "too fast"
    return f"predicted {seen}; {verdict.basis}"


def _is_rate(row: Row) -> bool:
    return row.question is not None and row.question.rate
