"""Training steps: closed forms of what is computed and sent, and that the model says when sharding pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.hardware import accelerators
from genaccel.predict.answers import parts_of, seconds_of
from genaccel.predict.chips import find_chip
from genaccel.predict.communication import Links, all_reduce_bytes, gather_bytes
from genaccel.predict.operators import training_work
from genaccel.predict.published_models import known_decoders
from genaccel.predict.training import BUILDING, TrainingStep, step_features
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


def test_a_mesh_gives_few_cards_few_links_and_one_hop():
    mesh, switch = Links(262.5e9, 25e9, 8, meshed=True), Links(300e9, 25e9, 8)
    assert [mesh.rate(n) for n in (1, 2, 8, 64)] == pytest.approx([262.5e9, 37.5e9, 262.5e9, 200e9])
    assert [mesh.rounds(n) for n in (1, 2, 8, 64)] == [0, 1, 1, 6]
    assert [switch.rounds(n) for n in (1, 2, 8)] == [0, 1, 3]
    assert {n for n, card in accelerators().items() if card.meshed} == {"gaudi1", "gaudi2", "gaudi3", "mi300x"}


def test_optimum_habanas_zero2_sums_whole_and_hides_nothing():
    usual = replace(STEP, chip=find_chip("gaudi2"), strategy="zero2")
    whole = replace(usual, stack="optimum-habana")
    sent, all_sent = step_features(usual), step_features(whole)
    assert all_sent["data_wire"] == pytest.approx(1.5 * sent["data_wire"])
    assert (sent["first_wire"], all_sent["first_wire"]) == (0.5, 1.0)
    assert step_features(replace(whole, strategy="zero1")) == step_features(replace(usual, strategy="zero1"))


def test_scores_that_are_written_out_cost_the_square_of_the_length():
    def moved(**changes):
        flash, math = (step_features(replace(STEP, flash=flash, **changes))["streamed"] for flash in (True, False))
        return (math - flash) * A100.memory_bytes_per_second

    per_sequence = 2 * LLAMA.num_heads * LLAMA.num_layers * 2048**2
    assert moved() == pytest.approx(11 * 2 * per_sequence)
    assert moved(length=1024) == pytest.approx(moved() / 4)
    assert moved(checkpointing=1.0) == pytest.approx(15 * 2 * per_sequence)


def test_a_card_waits_for_the_graph_of_a_step_that_is_watched():
    watched = replace(STEP, chip=find_chip("gaudi3"), stack="optimum-habana", watched=True)
    plain, waiting, longer = seconds_of([replace(watched, watched=False), watched, replace(watched, accumulation=8)])
    alone = seconds_of([replace(watched, watched=False, accumulation=8)])[0]
    assert 0.05 < waiting - plain < 0.3
    assert longer - alone == pytest.approx(waiting - plain)  # once a step, however many micro-batches
    assert step_features(replace(watched, backward_share=0.0))["built"] == pytest.approx(
        BUILDING * LLAMA.num_layers / 3
    )


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
