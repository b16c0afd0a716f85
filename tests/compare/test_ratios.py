"""Intervals of ratios against closed forms and simulation, outliers, Pareto sets by brute force."""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.made_records import TEXT, dust, fake, fp32, number, tuned

from genaccel.compare.identity import Measurement, measurements
from genaccel.compare.pareto import pareto_sets
from genaccel.compare.ratios import count_outliers, ratio_interval, remarks
from genaccel.errors import UserError

RATE = "train_tokens_per_second"


def cell(*samples: list[float], strategy: str = "ddp") -> list[Measurement]:
    """A cell of one record for each list of samples."""
    runs = []
    for n, values in enumerate(samples):
        figure = replace(tuned().figures[0], samples=tuple(values), value=statistics.median(values))
        runs.append(replace(tuned(f"{strategy}{n}", strategy), figures=(figure,)))
    return measurements(runs, RATE)


def test_samples_that_do_not_vary_give_the_ratio_itself() -> None:
    assert ratio_interval(cell([30.0] * 6), cell([20.0] * 6)) == ((1.5, 1.5), "bootstrap of samples")


def test_the_bootstrap_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    chance, hits = random.Random(1), 0
    for _ in range(120):
        ours = cell([chance.gauss(200, 10) for _ in range(25)])
        base = cell([chance.gauss(100, 5) for _ in range(25)])
        (low, high), _ = ratio_interval(ours, base)  # type: ignore[misc]
        hits += low <= 2.0 <= high
    assert 0.88 <= hits / 120 <= 1.0


def test_the_same_samples_give_the_same_interval() -> None:
    ours, base = cell([30.0, 31.0, 29.0, 33.0, 30.5]), cell([20.0, 21.0, 19.5, 20.2, 20.1])
    assert ratio_interval(ours, base) == ratio_interval(ours, base)


def test_perplexities_are_paired_by_window() -> None:
    # Differences of 1 and 3 nats over 20 tokens: mean 0.2, standard error 0.1 (as in test_perplexity).
    base = fp32(details={"text": dict(TEXT), "tokens_by_window": [10, 10], "nll_by_window": [30.0, 300.0]})
    other = fake(details={"tokens_by_window": [10, 10], "nll_by_window": [31.0, 303.0]})
    ours, theirs = (measurements([r], "perplexity") for r in (other, base))
    interval, how = ratio_interval(ours, theirs)
    assert how == "paired by window"
    assert interval == pytest.approx((math.exp(0.2 - 1.96 * 0.1), math.exp(0.2 + 1.96 * 0.1)), rel=1e-3)


def test_perplexities_with_standard_errors_alone() -> None:
    ours, theirs = (
        measurements([replace(r, figures=(replace(r.figure("perplexity"), stderr=e),))], "perplexity")
        for r, e in ((fake(perplexity=22.0), 0.22), (fp32(perplexity=20.0), 0.2))
    )
    interval, how = ratio_interval(ours, theirs)
    half = 1.96 * math.hypot(0.01, 0.01)
    assert how == "standard errors, not paired"
    assert interval == pytest.approx((1.1 * math.exp(-half), 1.1 * math.exp(half)), rel=1e-3)


def test_means_over_the_same_maps_are_paired() -> None:
    def judged(name: str, *values: float) -> list[Measurement]:
        figure = number("diffusion_crps", statistics.fmean(values), samples=values, protocol="mean over 4 maps")
        return measurements([dust(name, figures=(figure,))], "diffusion_crps")

    # One is half of the other on every map, however hard the map is.
    interval, how = ratio_interval(judged("a", 0.1, 0.2, 0.4, 0.9), judged("b", 0.2, 0.4, 0.8, 1.8))
    assert how == "paired by example"
    assert interval == pytest.approx((0.5, 0.5))


def test_without_samples_there_is_no_interval() -> None:
    ours, theirs = (measurements([r], "decode_tokens_per_second") for r in (fake(), fp32()))
    assert ratio_interval(ours, theirs) == (None, "")


@pytest.mark.parametrize(
    ("samples", "count"),
    [([], 0), ([1.0, 100.0], 0), ([10.0, 10.1, 10.2, 9.9, 10.0], 0), ([10.0, 10.1, 10.2, 9.9, 10.0, 30.0], 1),
     ([10.0] * 9 + [11.0], 1)],
)  # fmt: skip
def test_outliers_lie_beyond_the_outer_fences(samples: list[float], count: int) -> None:
    assert count_outliers(samples) == count


def test_what_may_mislead_is_remarked() -> None:
    noisy = replace(tuned().figures[0], samples=(1.0, 2.0, 3.0), value=2.0, spread=0.5)
    assert remarks(measurements([replace(tuned(), figures=(noisy,))], RATE)) == ["spread 50%", "few samples"]


# --- Pareto -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=2, max_size=12))
def test_the_pareto_set_is_what_nobody_beats(points: list[tuple[int, int]]) -> None:
    records = [
        replace(fake(f"r{n}"), figures=(number("tensor_bytes", float(size), "B"), number("perplexity", float(p))))
        for n, (size, p) in enumerate(points)
    ]
    (front,) = pareto_sets(records, ["bytes", "perplexity"])
    for point in front.points:
        size, p = point.values
        beaten = any(a <= size and b <= p and (a, b) != (size, p) for a, b in points)
        assert bool(point.beaten_by) is beaten
        if point.beaten_by:
            a, b = points[int(point.beaten_by[1:])]
            assert a <= size
            assert b <= p
            assert (a, b) != (size, p)


def test_more_speed_is_better_and_workloads_stay_apart() -> None:
    records = [fp32(), fake(), fake("x", 19.0, 8.0, model="other"), fp32("y", model="other")]
    fronts = pareto_sets(records, ["decode_tokens_per_second", "perplexity"])
    assert [(f.equal["model"], [p.record for p in f.points]) for f in fronts] == [
        ("tiny", ["base", "fake"]), ("other", ["y", "x"])
    ]  # fmt: skip
    assert [p.beaten_by for p in fronts[0].points] == ["", "base"]
    assert [p.beaten_by for p in fronts[1].points] == ["", ""]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [(["bytes"], "of two metrics"), (["bytes", "power_high_k"], "not known whether more"),
     (["bytes", "nothing"], "No record has a figure"), (["crps", "bytes"], "can mean")],
)  # fmt: skip
def test_a_set_that_cannot_be_found(metrics: list[str], message: str) -> None:
    odd = replace(fake("odd"), figures=(*fake().figures, number("power_high_k", 1.0)))
    with pytest.raises(UserError, match=message):
        pareto_sets([fp32(), odd, dust()], metrics)
    with pytest.raises(UserError, match="No two records of one workload"):
        pareto_sets([fp32()], ["bytes", "perplexity"])
