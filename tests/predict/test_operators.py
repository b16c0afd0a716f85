"""FLOPs in closed form against torch's own counter on real forward and backward passes, and against counting by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from genaccel import models
from genaccel.finetune.config import FinetuneConfig
from genaccel.finetune.lora import add_adapters
from genaccel.predict.operators import attended_pairs, training_work
from genaccel.shapes import find_shape, shape_of_config


@given(st.lists(st.integers(0, 30), max_size=4), st.none() | st.integers(1, 40))
def test_pairs_by_counting(lengths, window):
    counted = sum(
        1 for n in lengths for t in range(n) for s in range(n) if s <= t and (window is None or t - s < window)
    )
    assert attended_pairs(lengths, window) == counted


def counted_flops(folder, length, lora_rank=None, targets=(), checkpointing=False):
    """(all, attention alone) FLOPs of a pass by torch's counter; eager attention, which it sees, computes all pairs."""
    model = models.load(models.resolve(str(folder))).model
    model.set_attn_implementation("eager")
    if lora_rank:
        add_adapters(model, FinetuneConfig("x", lora=True, lora_rank=lora_rank, lora_targets=targets), 0)
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.randint(258, (1, length))
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    by_operator = counter.get_flop_counts()["Global"]
    attention = sum(v for k, v in by_operator.items() if "bmm" in str(k))
    return sum(by_operator.values()), attention


@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_llama_untied", "tiny_gpt2"])
def test_full_training_equals_torchs_count(architecture, request):
    folder = request.getfixturevalue(architecture)
    shape = shape_of_config(json.loads((folder / "config.json").read_text()), "x")
    length = 24
    total, attention = counted_flops(folder, length)
    work = training_work(shape, [length])
    # The very first layer's input gradient is computed too: it reaches the embedding.
    assert work.linear + work.head == total - attention
    assert attention * (length + 1) / (2 * length) == pytest.approx(work.attention), "half of the square, diagonal kept"


def test_adapters_equal_torchs_count_but_for_the_first_inputs(tiny_llama):
    shape = shape_of_config(json.loads((tiny_llama / "config.json").read_text()), "x")
    length, rank = 24, 4
    total, attention = counted_flops(tiny_llama, length, rank)
    work = training_work(shape, [length], lora_rank=rank)
    # Nothing below the first layer is trained, so torch leaves out the gradients of its first inputs: those of q, k, v
    # and of their A.
    first = sum(shape.linear_shapes[n][0] for n in ("q_proj", "k_proj", "v_proj")) + 3 * rank
    spared = 2 * length * shape.hidden_size * first
    assert work.linear + work.head + work.adapters - (total - attention) == pytest.approx(spared)


def test_six_flops_a_parameter_and_token():
    """The rule of thumb, which leaves out attention and counts the head but not the embedding."""
    shape = find_shape("llama-3.1-8b")
    work = training_work(shape, [2048] * 4)
    tokens = 4 * 2048
    thumb = 6 * (shape.num_parameters - shape.embedding_weights) * tokens
    assert (work.linear + work.head) == pytest.approx(thumb, rel=1e-3)
    assert 0 < work.attention < 0.1 * work.model


@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_llama_untied", "tiny_gemma2", "tiny_gpt2"])
def test_recomputation_equals_torchs_count_and_is_no_model_work(architecture, request):
    """What is computed again ends with the last tensor that is wanted: before down_proj, except where a norm or dropout follows."""
    folder = request.getfixturevalue(architecture)
    shape = shape_of_config(json.loads((folder / "config.json").read_text()), "x")
    length = 24
    plain = training_work(shape, [length])
    again = training_work(shape, [length], activation_checkpointing=True)
    assert again.model == plain.model == plain.hardware
    more = counted_flops(folder, length, checkpointing=True)[0] - counted_flops(folder, length)[0]
    square = 4 * shape.num_heads * shape.head_dim * shape.num_layers * length**2
    assert again.recomputed == pytest.approx(more - square + plain.attention / 3)
    assert again.hardware == again.model + again.recomputed


def test_recomputation_of_a_layer_by_hand():
    shape = find_shape("tinyllama-1.1b")
    plain = training_work(shape, [512])
    down = 2 * 512 * shape.num_layers * shape.hidden_size * shape.intermediate_size
    full = training_work(shape, [512], activation_checkpointing=True)
    assert full.recomputed == pytest.approx((plain.linear + plain.attention) / 3 - down)
    adapted = training_work(shape, [512], lora_rank=8, activation_checkpointing=True)
    assert adapted.recomputed == pytest.approx(adapted.linear / 2 + (adapted.attention + adapted.adapters) / 3)
    few = training_work(shape, [512], lora_rank=8, lora_targets=("q_proj",), activation_checkpointing=True)
    assert few.recomputed == pytest.approx(few.linear / 2 + (few.attention + few.adapters) / 3 - down)


def test_a_head_on_some_positions_costs_their_share():
    shape = find_shape("smollm2-135m")
    assert training_work(shape, [100], num_targets=25).head == training_work(shape, [100]).head / 4


def test_half_of_gemmas_layers_slide():
    shape = find_shape("gemma2-27b")
    long = training_work(shape, [8192]).attention
    per_pair = 3 * 4 * shape.head_dim * shape.num_heads
    expected = per_pair * 23 * (attended_pairs([8192]) + attended_pairs([8192], 4096))
    assert long == expected


def test_a_mixture_computes_with_the_experts_that_a_token_is_sent_to():
    """Against torch's count of a tiny Mixtral; its router scores all experts for every token."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        attn_implementation="eager",
    )
    config._experts_implementation = "eager"  # grouped products are not counted
    model, length = MixtralForCausalLM(config), 24
    shape = replace(
        find_shape("mixtral-8x7b"),
        num_layers=2,
        hidden_size=32,
        intermediate_size=48,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        vocab_size=96,
        num_experts=4,
        experts_per_token=2,
    )
    assert shape.num_parameters == sum(p.numel() for p in model.parameters())
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.randint(96, (1, length)), use_cache=False).logits.sum().backward()
    counts = counter.get_flop_counts()["Global"]
    attention = sum(v for k, v in counts.items() if "bmm" in str(k))
    work = training_work(shape, [length])
    assert work.linear + work.head == sum(counts.values()) - attention


def test_adapters_of_a_mixture_count_where_a_token_goes():
    shape = find_shape("mixtral-8x7b")
    dense = replace(shape, num_experts=1, experts_per_token=1)
    mlp = ("down_proj",)
    one = training_work(dense, [64], lora_rank=8, lora_targets=mlp).adapters
    assert training_work(shape, [64], lora_rank=8, lora_targets=mlp).adapters == 2 * one
    assert shape.adapter_weights(8, mlp) == 8 * dense.adapter_weights(8, mlp), "memory holds all of them"
