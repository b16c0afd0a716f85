"""Walking models: every matrix in order with its shape, layer and role; sizes by closed formulas."""

from __future__ import annotations

import pytest
import torch

from genaccel import layouts, models
from genaccel.errors import UserError

V, D, M, L, P = 258, 64, 128, 2, 128  # vocabulary, width, MLP width, layers, positions of the tiny models
KV = D // 2  # two of four heads have keys and values

LLAMA = [("self_attn.q_proj", D, D), ("self_attn.k_proj", KV, D), ("self_attn.v_proj", KV, D)]
LLAMA += [("self_attn.o_proj", D, D), ("mlp.gate_proj", M, D), ("mlp.up_proj", M, D), ("mlp.down_proj", D, M)]
GPT2 = [("attn.c_attn", 3 * D, D), ("attn.c_proj", D, D), ("mlp.c_fc", 4 * D, D), ("mlp.c_proj", D, 4 * D)]
BIASES = D + KV + KV + D + M + M + D
MODELS = {
    # embedding, layers' prefix, matrices of a layer, head tied, other elements
    "tiny_llama": ("model.embed_tokens", "model.layers", LLAMA, True, L * 2 * D + D),
    "tiny_llama_untied": ("model.embed_tokens", "model.layers", LLAMA, False, L * (2 * D + BIASES) + D),
    "tiny_qwen2": ("model.embed_tokens", "model.layers", LLAMA, True, L * (2 * D + D + KV + KV) + D),
    "tiny_gemma2": ("model.embed_tokens", "model.layers", LLAMA, True, L * 4 * D + D),
    "tiny_gpt2": ("transformer.wte", "transformer.h", GPT2, True, P * D + L * (4 * D + 3 * D + D + 4 * D + D) + 2 * D),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_is_found_in_order(request, name):
    embedding, prefix, matrices, tied, other = MODELS[name]
    layout = models.layout_of(models.resolve(str(request.getfixturevalue(name))))
    expected = [(embedding, (V, D), None, "embedding", None)]
    expected += [(f"{prefix}.{i}.{n}", (o, d), i, "linear", None) for i in range(L) for n, o, d in matrices]
    expected += [("lm_head", (V, D), None, "head", embedding if tied else None)]
    assert [(w.name, w.shape, w.layer, w.role, w.tied_to) for w in layout.weights] == expected
    assert [w.transposed for w in layout.weights] == [
        name == "tiny_gpt2" and w.role == "linear" for w in layout.weights
    ]
    assert (layout.layer_prefix, layout.num_layers, layout.max_positions) == (prefix, L, P)
    assert layout.other_elements == other
    stored = V * D * (1 if tied else 2) + L * sum(o * d for _, o, d in matrices)
    assert layout.fp32_bytes == 4 * (stored + other)


@pytest.mark.slow
def test_smollm2_has_the_parameters_that_it_is_named_for():
    layout = models.layout_of(models.resolve("smollm2-135m"))
    assert (layout.num_layers, layout.max_positions) == (30, 8192)
    assert layout.fp32_bytes == 4 * 134_515_008


def empty(config):
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def test_fused_experts_are_refused_by_name():
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    with pytest.raises(UserError) as caught:
        layouts.walk(empty(config))
    assert caught.value.message.startswith("model.layers.0.mlp.")
    assert "which genaccel cannot quantize" in caught.value.message


def test_a_state_space_model_is_refused_by_name():
    from transformers import MambaConfig

    config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, state_size=4)
    with pytest.raises(UserError, match=r"backbone\.layers\.0\.mixer.* which genaccel cannot quantize"):
        layouts.walk(empty(config))


@pytest.fixture
def llama(tiny_llama):
    return models.load(models.resolve(str(tiny_llama))).model


def test_a_linear_layer_that_computes_something_else_is_refused(llama):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    llama.model.layers[1].mlp.up_proj = Doubled(D, M, bias=False)
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj.*Doubled"):
        layouts.walk(llama)


def test_a_matrix_that_belongs_to_the_layer_itself_is_named(llama):
    llama.model.layers[1].gates = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(UserError, match=r"^model\.layers\.1\.gates is a weight of kind LlamaDecoderLayer"):
        layouts.walk(llama)


def test_a_vector_that_belongs_to_the_layer_is_counted_with_the_rest(llama):
    before = layouts.walk(llama)
    llama.model.layers[1].gate = torch.nn.Parameter(torch.zeros(5))
    after = layouts.walk(llama)
    assert after.weights == before.weights
    assert after.other_elements == before.other_elements + 5


def test_an_embedding_that_computes_something_else_is_refused(llama):
    class Doubled(torch.nn.Embedding):
        def forward(self, ids):
            return 2 * super().forward(ids)

    llama.set_input_embeddings(Doubled(V, D))
    with pytest.raises(UserError, match="The embedding is a Doubled"):
        layouts.walk(llama)


def test_a_model_without_a_list_of_layers_is_refused(llama):
    llama.config.num_hidden_layers = 7
    with pytest.raises(UserError, match="No list of 7 decoder layers was found in LlamaForCausalLM"):
        layouts.walk(llama)


def test_linear_is_what_computes_as_linear_does():
    from transformers.pytorch_utils import Conv1D

    class Renamed(torch.nn.Linear):
        pass

    class Other(torch.nn.Linear):
        def forward(self, x):
            return x

    assert [layouts.is_linear(m) for m in (torch.nn.Linear(2, 2), Renamed(2, 2), Conv1D(2, 2))] == [True] * 3
    assert [layouts.is_linear(m) for m in (Other(2, 2), torch.nn.Conv1d(2, 2, 1), torch.nn.Identity())] == [False] * 3
