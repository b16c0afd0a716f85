"""Generation: closed forms, and that more of what helps never hurts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.predict.answers import parts_of, seconds_of
from genaccel.predict.chips import find_chip
from genaccel.predict.published_models import known_decoders
from genaccel.predict.serving import Request, request_features

H100 = find_chip("h100")
LLAMA = known_decoders()["llama-3.1-8b"]
BASE = Request(LLAMA, H100, "vllm", 16, 512, 256)


def test_a_decoding_step_reads_weights_once_and_the_cache_once():
    f = request_features(BASE)
    weights = LLAMA.num_weights - LLAMA.head_weights  # the embedding is looked up, not read
    assert f["decode_read"] == pytest.approx(2 * weights / H100.memory_bytes_per_second)
    tokens = 16 * (512 + 128)
    assert f["decode_cache"] == pytest.approx(tokens * 131_072 / H100.memory_bytes_per_second)


def test_prefill_multiplies_every_token_with_every_layer():
    f = request_features(BASE)
    flops = 2 * (16 * 512 * LLAMA.layer_weights_per_token + 16 * LLAMA.head_weights)
    assert f["prefill_flops"] == pytest.approx(flops / 989e12)


@given(st.floats(1.0, 4.0), st.sampled_from([1, 8, 64]), st.sampled_from([128, 2048]))
def test_more_bandwidth_is_never_slower(times, batch, prompt):
    faster = replace(H100, memory_bytes_per_second=H100.memory_bytes_per_second * times)
    asked = replace(BASE, batch=batch, prompt=prompt)
    slow, fast = seconds_of([asked, replace(asked, chip=faster)])
    assert fast <= slow


@given(st.sampled_from([("bf16", "fp8"), ("fp8", "fp4"), ("bf16", "int4-weights")]), st.sampled_from([1, 16, 256]))
def test_narrower_weights_take_less_memory(pair, batch):
    wide, narrow = (replace(BASE, weights=((name, 1.0),), batch=batch, lenient=True) for name in pair)
    assert narrow.memory_bytes < wide.memory_bytes


@given(st.integers(1, 64), st.integers(1, 64))
def test_more_sequences_never_take_less_time(a, b):
    few, many = sorted((a, b))
    first, second = seconds_of([replace(BASE, batch=few), replace(BASE, batch=many)])
    assert first <= second


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 16]))
def test_more_cards_never_take_more_memory_each(cards, batch):
    asked = replace(BASE, batch=batch, shards=cards)
    assert replace(asked, shards=cards * 2).memory_bytes <= asked.memory_bytes


def test_a_batch_that_does_not_fit_goes_in_waves():
    asked = replace(BASE, batch=100_000.0, prompt=2048, new=2048)
    f = request_features(asked)
    assert f["waves"] == pytest.approx(100_000 / asked.most_sequences)
    assert f["rows"] == pytest.approx(asked.most_sequences)


def test_parts_add_up():
    assert sum(parts_of(BASE).values()) == pytest.approx(float(seconds_of([BASE])[0]))
