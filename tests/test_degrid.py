"""Weights off the 4-bit grid, the function unchanged."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from genaccel import models
from genaccel.degrid import LARGEST_FACTOR, degrid_llama_
from genaccel.plans import FORMATS
from genaccel.quantize.formats import decode, encode


def relative_change(before: torch.Tensor, after: torch.Tensor) -> float:
    return float((before - after).norm() / before.norm())


@pytest.fixture
def pair(request, tiny_llama):
    """A model and its rewritten copy."""
    model = models.load(models.resolve(str(tiny_llama))).model
    rewritten = copy.deepcopy(model)
    degrid_llama_(rewritten)
    return model, rewritten


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["tiny_llama", "tiny_llama_untied", pytest.param("smollm2-135m", marks=pytest.mark.slow)]
)
def test_weights_change_and_logits_do_not(request, name):
    """Grouped queries, a tied head; biases and a head of its own; the real model. In fp64, free of a kernel's noise."""
    source = name if name == "smollm2-135m" else str(request.getfixturevalue(name))
    model = models.load(models.resolve(source)).model.double()
    ids = torch.arange(2, 34)[None]
    before = model(ids).logits
    weights = {n: p.clone() for n, p in model.named_parameters() if n.endswith("_proj.weight")}
    embedding = model.get_input_embeddings().weight.clone()
    degrid_llama_(model)
    assert relative_change(before, model(ids).logits) < 1e-6
    assert min(relative_change(w, model.get_parameter(n)) for n, w in weights.items()) > 0.01
    assert torch.equal(model.get_input_embeddings().weight, embedding)
    for layer in model.model.layers:
        assert bool((layer.input_layernorm.weight == 1).all())
        assert bool((layer.post_attention_layernorm.weight == 1).all())


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tiny_llama, pair):
    _, rewritten = pair
    again, other = (models.load(models.resolve(str(tiny_llama))).model for _ in range(2))
    degrid_llama_(again)
    degrid_llama_(other, seed=1)
    up = [m.model.layers[0].mlp.up_proj.weight for m in (rewritten, again, other)]
    assert torch.equal(up[0], up[1])
    assert not torch.equal(up[0], up[2])


def test_factors_are_log_uniform_up_to_a_quarter(pair):
    model, rewritten = pair
    logs = []
    for old, new in zip(model.model.layers, rewritten.model.layers, strict=True):
        up = new.mlp.up_proj.weight / (old.mlp.up_proj.weight * old.post_attention_layernorm.weight)
        down = old.mlp.down_proj.weight / new.mlp.down_proj.weight
        assert torch.allclose(up, up[:, :1].expand_as(up), rtol=1e-4)  # one factor a hidden channel ...
        assert torch.allclose(down, up[:, 0].expand_as(down), rtol=1e-4)  # ... taken back behind it
        logs += up[:, 0].log().tolist()
    limit = math.log(LARGEST_FACTOR)
    assert max(map(abs, logs)) <= limit + 1e-5
    assert abs(sum(logs) / len(logs)) < 0.2 * limit
    assert sum(x * x for x in logs) / len(logs) == pytest.approx(limit**2 / 3, rel=0.2)  # a uniform's variance


def test_each_value_channel_is_taken_back_in_every_query_head_that_reads_it(pair):
    model, rewritten = pair
    size, group = model.config.head_dim, model.config.num_attention_heads // model.config.num_key_value_heads
    old, new = model.model.layers[1], rewritten.model.layers[1]
    value = new.self_attn.v_proj.weight / (old.self_attn.v_proj.weight * old.input_layernorm.weight)
    output = old.self_attn.o_proj.weight / new.self_attn.o_proj.weight
    for query_head in range(model.config.num_attention_heads):
        for channel in range(size):
            s = value[query_head // group * size + channel].mean()
            assert torch.allclose(output[:, query_head * size + channel], s, rtol=1e-3)


def test_weights_on_the_grid_leave_it(tiny_llama):
    """The reason for all this: 4-bit rounding is free on weights that it made, and not any more afterwards."""
    model = models.load(models.resolve(str(tiny_llama))).model
    form = FORMATS["int4_g32"]
    names = [n for n, p in model.named_parameters() if n.endswith("_proj.weight")]

    def loss(name: str) -> float:
        weight = model.get_parameter(name).detach()
        return relative_change(weight, decode(encode(weight, form), form))

    with torch.no_grad():
        for name in names:
            weight = model.get_parameter(name)
            weight.copy_(decode(encode(weight, form), form))
    assert max(map(loss, names)) < 1e-3
    degrid_llama_(model)
    assert min(map(loss, names)) > 0.02
