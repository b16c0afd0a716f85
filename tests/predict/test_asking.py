"""Predictions that are asked for: mistakes in one sentence, properties of memory, ranked advice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.advise import Advice, advise_finetuning, hours, ranked
from genaccel.advise_quantize import advise_quantization, percent
from genaccel.errors import UserError
from genaccel.predict.finetuning import Finetuning, memory_of, predict_finetuning
from genaccel.predict.generating import Generating, predict_generating
from genaccel.predict.superresolving import Superresolving, predict_superresolving
from genaccel.predict.sweep import combinations, sweep
from genaccel.shapes import find_shape

LLAMA = Finetuning("llama-3.1-8b", "h100", strategy="fsdp")


@pytest.mark.parametrize(
    ("ask", "changed", "message", "hint"),
    [
        (Finetuning, {"cards": 0}, "0 cards", "1 or more"),
        (Finetuning, {"cards": 3}, "does not divide into 3 cards", "--batch 63"),
        (Finetuning, {"strategy": "ddpp"}, "no strategy 'ddpp'", "ddp"),
        (Finetuning, {"strategy": "single"}, "uses one card", "ddp"),
        (Finetuning, {"length": 200_000}, "longer than llama-3.1-8b's context", "shorter"),
        (Finetuning, {"on": "a100", "precision": "fp8"}, "a100 does not compute in fp8", "bf16"),
        (Finetuning, {"on": "a10"}, "no accelerator 'a10'", "a100"),
        (Finetuning, {"model": "llama-3.1-8"}, "no model in the catalogue", "llama-3.1-8b"),
        (Finetuning, {"cluster": "voyagr"}, "no cluster 'voyagr'", "voyager"),
        (Generating, {"cards": 0}, "0 cards", "1 or more"),
        (Generating, {"cards": 3}, "32 heads of llama-3.1-8b cannot be divided", "--cards 2"),
        (Generating, {"precision": "int9"}, "no precision 'int9'", "int"),
        (Generating, {"on": "a100", "precision": "fp8"}, "a100 does not compute in fp8", ""),
        (Generating, {"prompt": 131_000, "new": 1000}, "longer than", "shorter"),
        (Superresolving, {"model": "huge"}, "no image network 'huge'", "base"),
        (Superresolving, {"model": "base", "batch": 0}, "draw nothing", "at least 1"),
        (Superresolving, {"model": "base", "size": 63}, "cannot be folded", "multiple"),
    ],
)
def test_mistakes_are_one_sentence(ask, changed, message, hint):
    predict = {Finetuning: predict_finetuning, Generating: predict_generating, Superresolving: predict_superresolving}[
        ask
    ]
    base = {"model": "llama-3.1-8b", "on": "h100"} | changed
    with pytest.raises(UserError) as caught:
        predict(ask(**base))
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.count(". ") == 0


def test_a_model_too_large_says_how_many_cards_would_do():
    found = predict_finetuning(Finetuning("llama-3.3-70b", "a100", 4, "ddp"))
    assert not found.fits
    assert "32 cards would do with fsdp" in found.hint
    served = predict_generating(Generating("llama-3.3-70b", "a100"))
    assert "2 cards would do" in served.problem


@given(st.sampled_from(["fsdp", "zero1", "zero2", "zero3"]), st.sampled_from([1, 2, 4, 8, 16]))
def test_more_cards_never_take_more_memory_each(strategy, cards):
    shape = find_shape("llama-3.1-8b")
    few, many = (
        memory_of(Finetuning("x", "h100", n, strategy, global_batch=n), shape, 1).total_bytes
        for n in (cards, 2 * cards)
    )
    assert many <= few


def test_figures_belong_together():
    found = predict_finetuning(LLAMA)
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert found.rates["tokens_per_second"] == pytest.approx(64 * 2048 / found.seconds)
    assert found.low < found.seconds < found.high
    assert 0 < found.mfu < 1
    assert found.memory_share == pytest.approx(found.memory_bytes / 80e9)


def test_unknown_figures_are_none():
    found = predict_finetuning(Finetuning("tinyllama-1.1b", "gaudi1"))
    assert found.mfu is None, "no peak of Gaudi 1 was published"
    assert found.dollars is None
    assert found.warnings


def test_the_largest_micro_batch_that_fits_is_taken():
    found = predict_finetuning(LLAMA)
    micro = found.settings["micro_batch"]
    shape = find_shape("llama-3.1-8b")
    assert found.fits
    assert memory_of(LLAMA, shape, 2 * micro).total_bytes > 0.95 * 80e9 or 64 // 8 % (2 * micro)


def test_every_combination_once():
    assert combinations({"a": [1, 2], "b": ["x"]}) == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    with pytest.raises(UserError, match="more than"):
        combinations({"a": range(1000), "b": range(1000)})


def test_a_sweep_goes_on_past_what_cannot_be():
    found, refused = sweep(
        lambda cards: predict_generating(Generating("llama-3.1-8b", "h100", cards)), {"cards": [1, 3, 2]}
    )
    assert [p.settings["cards"] for p in found] == [1, 2]
    assert len(refused) == 1


@pytest.mark.parametrize("text", ["24", "soon", "-1h", "h"])
def test_deadlines_that_are_none(text):
    with pytest.raises(UserError):
        hours(text)


def test_deadlines_and_shares():
    assert (hours("24h"), hours("90m"), hours("2d")) == (24, 1.5, 48)
    assert percent("1%") == percent("0.01") == 0.01


def test_equal_times_are_ordered_by_what_is_sent():
    p = predict_finetuning(LLAMA)
    found = [Advice(p, 1.0, 9e9, 1, ()), Advice(p, 1.02, 1e9, 1, ()), Advice(p, 2.0, 0.0, 0, ())]
    assert [a.value for a in ranked(found, 3)] == [1.02, 1.0, 2.0]


def test_ddp_comes_out_where_the_model_fits_and_sharding_where_it_does_not():
    asked = Finetuning("llama-3.1-8b", "gaudi2", cluster="voyager-gaudi2", samples=1000, length=512, lora_rank=16)
    small = advise_finetuning(asked)
    assert small.ranked[0].prediction.settings["strategy"] in ("ddp", "single")
    large = advise_finetuning(
        Finetuning("llama-3.3-70b", "gaudi2", cluster="voyager-gaudi2", samples=1000, length=512, lora_rank=16)
    )
    assert large.ranked[0].prediction.settings["strategy"] in ("fsdp", "zero3")
    assert any(name == "ddp" and "do not fit" in why for name, _, why in large.ruled_out)


def test_no_quality_is_promised_without_a_measurement():
    found = advise_quantization("tinyllama-1.1b", "a100", 0.01, [])
    assert found.allowed == ()
    assert {m.increase for m in found.unmeasured} == {None}
    sizes = [m.prediction.memory_bytes for m in sorted(found.unmeasured, key=lambda m: m.compression)]
    assert sizes == sorted(sizes, reverse=True)
