"""Training steps: closed forms of what is computed and sent, and that the model says when sharding pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.predict.answers import parts_of, seconds_of
from genaccel.predict.chips import find_chip
from genaccel.predict.communication import Links, all_reduce_bytes, gather_bytes
from genaccel.predict.operators import training_work
from genaccel.predict.published_models import known_decoders
from genaccel.predict.training import TrainingStep, step_features
from genaccel.shapes import find_shape

A100 = find_chip("a100")
LLAMA = known_decoders()["llama-3.1-8b"]
STEP = TrainingStep(LLAMA, A100, "llm-foundry", "ddp", 8, 2, 1, 2048)


def test_model_flops_are_those_of_the_exact_count():
    work = training_work(find_shape("llama-3.1-8b"), [2048] * 16)
    assert STEP.model_flops == pytest.approx(work.model, rel=1e-6)


def test_what_a_card_sends():
    weights = LLAMA.num_weights
    rate = A100.links.inside
    assert step_features(STEP)["data_wire"] == pytest.approx(all_reduce_bytes(2 * weights, 8) / rate)
    sharded = step_features(replace(STEP, strategy="zero3", accumulation=4))["data_wire"]
    assert sharded == pytest.approx(4 * gather_bytes(6 * weights, 8) / rate)


def test_a_ring_between_nodes_uses_all_links_of_a_node():
    links = Links(inside=300e9, between=25e9, cards_per_node=8)
    assert links.rate(8) == 300e9
    assert links.rate(64) == 200e9
    assert links.rate(8, stride=8) == 25e9


@given(st.sampled_from(["ddp", "fsdp", "zero2", "zero3"]), st.sampled_from([1, 2, 4]), st.floats(1.0, 8.0))
def test_faster_links_are_never_slower(strategy, accumulation, times):
    faster = replace(A100, links=Links(300e9 * times, 25e9 * times))
    asked = replace(STEP, strategy=strategy, accumulation=accumulation)
    slow, fast = seconds_of([asked, replace(asked, chip=faster)])
    assert fast <= slow * (1 + 1e-9)


@pytest.mark.parametrize(("chip", "gain"), [("a100", 0.03), ("h100", 0.03), ("gaudi1", 0.0), ("gaudi2", 0.0)])
def test_sharding_a_model_that_fits_hardly_gains(chip, gain):
    """Only the update of the weights is shared; what it costs to gather them depends on the links."""
    asked = replace(STEP, chip=find_chip(chip), model=known_decoders()["mpt-1b"], stack="x", accumulation=4)
    plain, sharded = seconds_of([asked, replace(asked, strategy="zero3")])
    assert sharded > plain * (1 - gain)


def test_parts_add_up():
    assert sum(parts_of(STEP).values()) == pytest.approx(float(seconds_of([STEP])[0]))
