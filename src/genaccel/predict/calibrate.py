"""Fit the constants of the time models on published rows, and learn from groups left out how far off they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from genaccel.predict.answers import MODELS, errors_like, features_of, model_of, on_several
from genaccel.predict.constants import Array, Corrections, TimeModel, corrections_of
from genaccel.predict.fitting import Problem, State, fit, leave_groups_out, linearize, stack_features
from genaccel.predict.rows import Row, group_id


@dataclass
class Calibration:
    """A time model fitted to rows. ``left_out`` are predicted log-seconds of each row without its group."""

    model: TimeModel
    rows: list[Row]
    problem: Problem
    state: State
    left_out: Array

    @property
    def corrections(self) -> Corrections:
        """The fitted corrections."""
        return self.problem.corrections(self.state.vector)

    @property
    def errors(self) -> Array:
        """Logarithm of predicted over published time of each row, predicted without its group."""
        return self.left_out - self.problem.logs


def usable(rows: Sequence[Row]) -> list[Row]:
    """Rows to fit: predictable, not suspect, times rather than memory, and each figure once."""
    derived = ("time_to_train", "samples_per_s_incl_eval", "time_to_train_olympic_mean")
    return [
        row
        for row in rows
        if row.question and not row.suspect and not row.memory and row.cells["metric"] not in derived
    ]


def problem_of(model: TimeModel, rows: Sequence[Row]) -> Problem:
    """The rows of one time model as a problem to fit."""
    asked = [row.question.asked for row in rows if row.question]
    seconds = np.array([row.question.seconds(row.value) for row in rows if row.question])
    features = stack_features(model.features, [features_of(question) for question in asked])
    return Problem(model, features, seconds, [q.key for q in asked], np.array([row.group for row in rows]))


def calibrate(rows: Sequence[Row], refit: bool = True) -> dict[str, Calibration]:
    """Every time model fitted to its rows; without ``refit`` the stored constants are taken as the fit."""
    found = {}
    for name, model in MODELS.items():
        mine = [row for row in usable(rows) if row.question and model_of(row.question.asked) is model]
        if not mine:
            continue
        problem = problem_of(model, mine)
        stored = corrections_of(model)
        state = fit(problem, stored) if refit else linearize(problem, problem.start(stored))
        found[name] = Calibration(model, mine, problem, state, leave_groups_out(problem, state, problem.groups))
    return found


def constants_toml(found: dict[str, Calibration]) -> str:
    """The fitted corrections as the catalogue keeps them."""
    lines = [
        "# Corrections of the logarithms of the time models' constants (see predict/constants.py), fitted on published rows.",
        "# Made by: genaccel calibrate --package",
    ]
    for name, calibration in found.items():
        meanings = [f"#   {c.name} (prior {c.prior:g}): {c.meaning}" for c in calibration.model.constants]
        lines += ["", f"# {name}: {len(calibration.rows)} rows", *meanings]
        lines += corrections_toml(calibration.corrections)
    return "\n".join(lines) + "\n"


def corrections_toml(corrections: Corrections) -> list[str]:
    """Lines of a TOML file with these corrections."""
    lines = []
    for level, entries in corrections.as_document().items():
        lines += ["", f"[{corrections.model.name}.corrections.{level}]"]
        for entry, given in entries.items():
            values = ", ".join(f"{constant} = {value}" for constant, value in given.items())
            lines.append(f'"{entry}" = {{ {values} }}')
    return lines


def errors_csv(found: dict[str, Calibration]) -> str:
    """The errors of left-out rows, which intervals are made of."""
    lines = ["workload,stack,device,several,group,error"]
    for calibration in found.values():
        for row, error in zip(calibration.rows, calibration.errors, strict=True):
            assert row.question is not None
            asked = row.question.asked
            place = f"{asked.key.stack},{asked.key.device},{on_several(asked):d}"
            lines.append(f"{errors_like(asked)},{place},{group_id(row.group)},{error:.3f}")
    return "\n".join(lines) + "\n"
