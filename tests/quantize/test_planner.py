"""Phase 2's splits on a model whose bytes can be counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.hardware import find_target, targets
from genaccel.plans import LayerScore, ModelLayout, SensitivityReport, WeightInfo, find_format
from genaccel.quantize.planner import Allocation, make_plan

WEIGHTS = tuple(WeightInfo(f"l.{i}.w", (64, 64), i, "linear") for i in range(8))
LAYOUT = ModelLayout("l", 8, (WeightInfo("emb", (32, 64), None, "embedding"), *WEIGHTS), other_elements=0)


def report(scores) -> SensitivityReport:
    return SensitivityReport("m", "magnitude", tuple(LayerScore(i, f"l.{i}", s, 4096) for i, s in enumerate(scores)))


RISING = report([i / 10 for i in range(8)])


def high_layers(allocation: Allocation, scores=RISING, target: str = "cpu") -> set[int]:
    formats = make_plan(scores, LAYOUT, find_target(target), allocation).formats
    return {i for i in range(8) if formats[f"l.{i}"] == find_target(target).pair.high}


def test_the_share_takes_the_most_sensitive():
    assert high_layers(Allocation(share=0.25)) == {6, 7}
    assert high_layers(Allocation(share=0)) == set()
    assert high_layers(Allocation(share=1)) == set(range(8))


def test_two_means_takes_the_upper_cluster():
    assert high_layers(Allocation("two-means"), report([0.1, 0.9, 0.12, 0.11, 0.88, 0.1, 0.1, 0.1])) == {1, 4}


@given(st.floats(1.0, 3.9))
def test_compression_is_a_hard_bound_and_wastes_no_layer(wanted):
    def size(num_high: int) -> int:
        return 32 * 64 * 2 + num_high * 4096 * 2 + (8 - num_high) * (4096 + 64 * 4)

    fits = [n for n in range(9) if LAYOUT.fp32_bytes / size(n) >= wanted]
    allocation = Allocation("compression", compression=wanted)
    if not fits:
        with pytest.raises(UserError, match=f"the most is {LAYOUT.fp32_bytes / size(0):.3f}"):
            high_layers(allocation)
    else:
        assert len(high_layers(allocation)) == max(fits)


@pytest.mark.parametrize(
    ("embeddings", "form"), [("high", "bf16"), ("low", "int8"), ("keep", "fp32"), ("int4_g32", "int4_g32")]
)
def test_the_embedding_gets_what_was_asked(embeddings, form):
    plan = make_plan(RISING, LAYOUT, find_target("cpu"), Allocation(embeddings=embeddings))
    assert plan.formats["emb"] == form


def test_every_target_has_a_pair_of_known_formats():
    pairs = {name: (a.pair.high, a.pair.low) for name, a in targets().items()}
    assert pairs["a100"] == ("fp16", "int8")
    assert pairs["gaudi2"] == ("bf16", "fp8_e4m3")
    assert pairs["cpu"] == ("bf16", "int8")
    for accelerator in targets().values():
        assert find_format(accelerator.pair.high).bits > find_format(accelerator.pair.low).bits


def test_scores_may_come_in_any_order():
    shuffled = SensitivityReport("m", "magnitude", RISING.scores[::-1])
    assert high_layers(Allocation(share=0.25), shuffled) == {6, 7}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"layer": 3}, "scores layer 3 as l.2, where the model has layer 2, l.2"),
        ({"name": "h.2"}, "scores layer 2 as h.2, where the model has layer 2, l.2"),
        ({"layer": 9}, "scores layer 3 as l.3, where the model has layer 2, l.2"),
    ],
)
def test_a_report_that_scores_other_layers_is_refused(change, sentence):
    scores = list(RISING.scores)
    scores[2] = replace(scores[2], **change)
    with pytest.raises(UserError) as caught:
        make_plan(SensitivityReport("m", "magnitude", tuple(scores)), LAYOUT, find_target("cpu"), Allocation())
    assert sentence in caught.value.message


@pytest.mark.parametrize("compression", [None, 0.0, -1.0])
def test_compression_must_be_asked_for(compression):
    with pytest.raises(UserError, match="needs the compression"):
        high_layers(Allocation("compression", compression=compression))


def test_what_was_done_is_in_the_plan():
    plan = make_plan(RISING, LAYOUT, find_target("a100"), Allocation(share=0.25, embeddings="keep"))
    assert (plan.model, plan.target) == ("m", "a100")
    assert plan.method == "magnitude: 2 of 8 layers high, share 0.25, embeddings keep"
    assert list(plan.formats) == ["emb", *(f"l.{i}" for i in range(8))]
    LAYOUT.resolve(plan.formats)


def test_an_untied_head_gets_a_line_of_its_own_and_a_tied_one_none():
    for tied_to, lines in ((None, 10), ("emb", 9)):
        head = WeightInfo("head", (32, 64), None, "head", tied_to)
        layout = ModelLayout("l", 8, (*LAYOUT.weights, head), other_elements=0)
        plan = make_plan(RISING, layout, find_target("cpu"), Allocation(embeddings="int4_g64"))
        assert len(plan.formats) == lines
        assert plan.formats.get("head", "int4_g64") == "int4_g64"
        layout.resolve(plan.formats)


def test_a_report_of_another_model_is_refused():
    with pytest.raises(UserError, match="has 3 layers, m has 8"):
        make_plan(report([1.0, 2.0, 3.0]), LAYOUT, find_target("cpu"), Allocation())
