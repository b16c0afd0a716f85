"""The learning rate depends on samples alone: closed forms, and independence of how they are split into steps."""

from __future__ import annotations

import math

import pytest

from genaccel.train.config import TrainConfig
from genaccel.train.schedule import learning_rate


def rate(samples, total=100, **more):
    return learning_rate(TrainConfig(learning_rate=1.0, **more), samples, total)


@pytest.mark.parametrize(
    ("schedule", "samples", "expected"),
    [
        ("constant", 90, 1.0),
        ("linear", 0, 1.0),
        ("linear", 25, 0.75),
        ("linear", 100, 0.0),
        ("cosine", 0, 1.0),
        ("cosine", 50, 0.5),
        ("cosine", 75, 0.5 * (1 + math.cos(0.75 * math.pi))),
        ("cosine", 120, 0.0),
    ],
)
def test_closed_forms(schedule, samples, expected):
    assert rate(samples, schedule=schedule) == pytest.approx(expected)


@pytest.mark.parametrize(("samples", "expected"), [(0, 0.2), (8, 0.4), (32, 1.0), (40, 1.0), (70, 0.5)])
def test_warm_up_rises_to_the_highest_and_then_falls(samples, expected):
    assert rate(samples, schedule="linear", warmup_samples=40, global_batch=8) == pytest.approx(expected)


def test_processes_and_micro_batches_change_nothing():
    rates = {
        learning_rate(TrainConfig(strategy="ddp", processes=p, micro_batch=m), 24, 80)
        for p in (1, 2, 4)
        for m in (1, 2)
    }
    assert len(rates) == 1
