"""Fitting against cases whose answer is known: constants that made the data, and fitting anew without a group."""

from __future__ import annotations

import numpy as np
import pytest

from genaccel.predict.constants import Constant, Corrections, Key, TimeModel
from genaccel.predict.fitting import Influence, Problem, fit, leave_groups_out

CONSTANTS = (Constant("rate", 1.0, 1.0, "of work"), Constant("start", 0.1, 1.0, "of a step"))
MODEL = TimeModel("test", CONSTANTS, ("work",), lambda c, f: {"work": f["work"] / c["rate"], "start": c["start"]})


def made(noise=0.0, seed=0):
    """Rows of three devices with rates of 1, 2 and 4."""
    random = np.random.default_rng(seed)
    work = random.uniform(0.1, 10, 90)
    device = np.arange(90) % 3
    seconds = (work / 2.0**device + 0.1) * np.exp(noise * random.normal(size=90))
    keys = [Key("family", f"card{d}", "stack") for d in device]
    groups = np.array([f"g{i % 9}" for i in range(90)])
    return Problem(MODEL, {"work": work}, seconds, keys, groups)


def test_the_constants_that_made_the_data_are_found():
    problem = made()
    state = fit(problem)
    found = problem.corrections(state.vector)
    for device in range(3):
        rate, start = np.exp(found.logarithms(Key("family", f"card{device}", "stack")))
        assert rate == pytest.approx(2.0**device, rel=0.02)
        assert start == pytest.approx(0.1, rel=0.05)


def test_outliers_hardly_matter():
    problem = made()
    problem.logs[:4] += 3.0
    state = fit(problem)
    rate, _ = np.exp(problem.corrections(state.vector).logarithms(Key("family", "card2", "stack")))
    assert rate == pytest.approx(4.0, rel=0.05)


def test_leaving_rows_out_is_nearly_fitting_without_them():
    problem = made(0.05)
    state = fit(problem)
    rows = np.flatnonzero(problem.groups == "g4")
    keep = np.setdiff1d(np.arange(90), rows)
    other = Problem(
        MODEL,
        {"work": problem.features["work"][keep]},
        problem.seconds[keep],
        [problem.keys[i] for i in keep],
        problem.groups[keep],
    )
    other.weight = problem.weight[keep]
    exact = fit(other).vector
    assert Influence.of(problem, state).without(rows) == pytest.approx(exact, abs=0.02)
    left_out = leave_groups_out(problem, state, problem.groups)
    assert left_out[rows] == pytest.approx(problem.predicted(exact, rows), abs=0.02)


def test_a_device_never_seen_has_the_constants_of_its_family():
    problem = made()
    found = problem.corrections(fit(problem).vector)
    rate, _ = np.exp(found.logarithms(Key("family", "new", "stack")))
    assert 1 < rate < 4
    assert not found.has("device", "new")


def test_corrections_survive_a_file():
    problem = made()
    found = problem.corrections(fit(problem).vector)
    again = Corrections.from_document(MODEL, found.as_document())
    key = Key("family", "card1", "stack")
    assert again.logarithms(key) == pytest.approx(found.logarithms(key), abs=0.01)
