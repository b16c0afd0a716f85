"""Grids and scaling studies: which runs they make, and the efficiency that is computed from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.made_records import made, number

from genaccel.errors import UserError
from genaccel.train.study import parse_grid, scaling_cells, scaling_of, without


def test_every_combination_the_last_option_fastest():
    assert parse_grid(["strategy=ddp,fsdp", "--micro_batch=1,2"]) == [
        {"strategy": "ddp", "micro-batch": "1"},
        {"strategy": "ddp", "micro-batch": "2"},
        {"strategy": "fsdp", "micro-batch": "1"},
        {"strategy": "fsdp", "micro-batch": "2"},
    ]


@pytest.mark.parametrize("item", ["strategy", "=a", "strategy=", "strategy=,"])
def test_an_option_without_values_is_refused(item):
    with pytest.raises(UserError, match="no option with values"):
        parse_grid([item])


@pytest.mark.parametrize(
    ("arguments", "names", "left"),
    [
        (["m", "--grid", "a=1", "b=2", "--steps", "3"], ["a", "b"], ["m", "--steps", "3"]),
        (["m", "--a", "1", "--b=2", "--grid=a=1"], ["a"], ["m", "--b=2"]),
        (["--scaling", "1,2", "--global_batch", "4", "x"], ["scaling", "global-batch"], ["x"]),
    ],
)
def test_options_of_the_study_are_taken_out(arguments, names, left):
    assert without(arguments, names) == left


def test_weak_scaling_gives_every_process_the_same_work():
    assert scaling_cells([4, 1, 2], "single", 8) == [
        {"processes": "1", "strategy": "single", "global-batch": "8"},
        {"processes": "2", "strategy": "ddp", "global-batch": "16"},
        {"processes": "4", "strategy": "ddp", "global-batch": "32"},
    ]
    assert scaling_cells([2, 4], "fsdp", 8)[1] == {"processes": "4", "strategy": "fsdp", "global-batch": "16"}


@pytest.mark.parametrize(("processes", "batch"), [([2], 8), ([0, 1], 8), ([2, 4], 7)])
def test_studies_that_say_nothing_are_refused(processes, batch):
    with pytest.raises(UserError):
        scaling_cells(processes, "single", batch)


def test_efficiency_is_per_process_against_the_fewest():
    def run(processes, rate):
        record = made(f"r{processes}", "full", number("images", rate))
        return replace(record, environment=replace(record.environment, num_devices=processes))

    rows = scaling_of([run(4, 30.0), run(1, 10.0), run(2, 18.0)], "images")
    assert [(r.processes, r.per_second) for r in rows] == [(1, 10.0), (2, 18.0), (4, 30.0)]
    assert [r.efficiency for r in rows] == pytest.approx([1.0, 0.9, 0.75])
