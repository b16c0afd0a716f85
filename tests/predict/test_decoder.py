"""Parts of a decoder in closed form, against published figures and counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.predict.decoder import Decoder, approximate_decoder, decoder_of
from genaccel.predict.operators import attended_pairs, attention_flops
from genaccel.predict.published_models import find_decoder, known_decoders
from genaccel.predict.rows import Unpredictable
from genaccel.shapes import find_shape


def test_keys_and_values_of_the_longest_context():
    model = decoder_of(find_shape("llama-3.1-8b"))
    assert model.cache_bytes_per_token(2) * 131_072 == 16 * 2**30


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("meta-llama/Llama-2-7b-hf", 6.74),
        ("meta-llama/Meta-Llama-3-70B", 70.55),
        ("mistralai/Mistral-7B-v0.1", 7.24),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7),
        ("Qwen/Qwen2-7B", 7.62),
        ("Qwen/Qwen2-72B", 72.7),
        ("Qwen/Qwen3-30B-A3B", 30.5),
        ("EleutherAI/gpt-j-6b", 6.05),
        ("bigscience/bloom-7b1", 7.07),
        ("EleutherAI/gpt-neox-20b", 20.6),
        ("google/gemma-2-27b", 27.2),
        ("tiiuae/falcon-180B", 180),
        ("Llama-3.1-405B", 405.9),
        ("MPT-30b", 29.98),
    ],
)
def test_parameters_are_those_of_the_model_cards(name, billions):
    found, warnings = find_decoder(name, None)
    assert warnings == ()
    assert found.num_weights / 1e9 == pytest.approx(billions, rel=0.02)


def test_a_mixture_reads_only_experts_that_were_chosen():
    model = known_decoders()["mixtral-8x7b"]
    assert model.layer_weights_read(1) == pytest.approx(model.layer_weights_per_token)
    assert model.layer_weights_read(1e6) == pytest.approx(model.num_weights - 2 * model.head_weights)


@given(st.floats(0, 1e4), st.floats(0, 1e4))
def test_more_tokens_never_read_fewer_weights(a, b):
    model = known_decoders()["mixtral-8x7b"]
    few, many = sorted((a, b))
    assert model.layer_weights_read(few) <= model.layer_weights_read(many)


@given(st.integers(1, 400), st.integers(1, 300), st.sampled_from([0.0, 0.5, 1.0]))
def test_pairs_agree_with_those_of_training(length, window, share):
    model = Decoder("x", 2, 8, 8, 2, 1, 4, 10, sliding_window=window, sliding_share=share)
    full, sliding = attended_pairs([length]), attended_pairs([length], window)
    assert model.causal_pairs(length) == pytest.approx((1 - share) * full + share * sliding)


def test_attention_flops_are_those_of_training():
    shape = find_shape("llama-3.1-8b")
    model = decoder_of(shape)
    assert model.attention_flops(model.causal_pairs(2048)) == pytest.approx(attention_flops(shape, [2048]))


def test_few_heads_are_kept_more_than_once():
    model = known_decoders()["qwen/qwen2-7b"]
    assert model.cache_bytes_per_token(2, 8) == model.cache_bytes_per_token(2, 4) == model.cache_bytes_per_token(2) / 4


@pytest.mark.parametrize("billions", [0.125, 1.3, 7, 13, 34, 70, 180])
def test_a_size_alone_gives_a_decoder_of_that_size(billions):
    found = approximate_decoder("x", billions)
    assert found.num_weights / 1e9 == pytest.approx(billions, rel=0.15)
    assert found.approximate


@pytest.mark.parametrize("name", ["some-lab/Unheard-13B", "Other-1.5b-chat", "New-8x7B"])
def test_an_unknown_model_is_approximated_and_says_so(name):
    _, warnings = find_decoder(name, None)
    assert warnings


def test_a_model_of_unknown_size_is_refused():
    with pytest.raises(Unpredictable, match="size of mystery"):
        find_decoder("mystery", None)
