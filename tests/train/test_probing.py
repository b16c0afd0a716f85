"""Choosing an arithmetic by measuring: the fastest by a margin, the plain one otherwise, hopeless ones tried once."""

from __future__ import annotations

import time

import pytest

from genaccel import devices
from genaccel.train.group import Group
from genaccel.train.probing import Arithmetic, fastest

PLAIN, LAST, HALF = Arithmetic(), Arithmetic(channels_last=True), Arithmetic("bf16")


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({PLAIN: 0.02, LAST: 0.01, HALF: 0.03}, LAST),
        ({PLAIN: 0.010, LAST: 0.0099, HALF: 0.03}, PLAIN),  # not worth leaving the plain one
        ({PLAIN: 0.005, LAST: 0.02, HALF: 0.06}, PLAIN),
    ],
)
def test_the_fastest_by_a_margin(seconds, chosen):
    calls = dict.fromkeys(seconds, 0)

    def step_with(arithmetic):
        def step():
            calls[arithmetic] += 1
            time.sleep(seconds[arithmetic])

        return step

    probe = fastest(list(seconds), step_with, Group(devices.get("cpu")))
    assert probe.chosen == chosen
    assert list(probe.seconds) == [str(a) for a in seconds]
    best = min(seconds.values())
    assert calls == {a: 1 if s > 8 * best else 4 for a, s in seconds.items()}
    assert "measured" in probe.reason


def test_one_candidate_is_not_measured():
    probe = fastest([HALF], lambda _: pytest.fail("nothing to compare"), Group(devices.get("cpu")))
    assert (probe.chosen, probe.seconds, probe.reason) == (HALF, {}, "bf16, contiguous (as told)")
