"""Shapes: parameter counts equal those of the models that transformers builds, without memory, from their configurations."""

from __future__ import annotations

import json

import pytest
import torch

from genaccel.errors import UserError
from genaccel.hardware import accelerator_of
from genaccel.shapes import find_shape, model_shapes, shape_of_config


def configuration(shape):
    from transformers import Gemma2Config, LlamaConfig

    kind = Gemma2Config if shape.name.startswith("gemma2") else LlamaConfig
    return kind(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied_embeddings,
        max_position_embeddings=shape.context,
    )


@pytest.mark.parametrize("name", sorted(model_shapes()))
def test_parameters_equal_those_of_the_built_model(name):
    from transformers import AutoModelForCausalLM

    shape = find_shape(name)
    config = configuration(shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert shape.num_parameters == sum(p.numel() for p in model.parameters())
    again = shape_of_config(json.loads(config.to_json_string()), name)
    assert again.num_parameters == shape.num_parameters
    assert (again.linear_shapes, again.context) == (shape.linear_shapes, shape.context)


SMALL = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
        ("Llama", {"head_dim": 32, "tie_word_embeddings": True}),
        ("Mistral", {"sliding_window": None}),
        ("Qwen2", {"tie_word_embeddings": True}),
        ("Qwen3", {"head_dim": 16, "attention_bias": True}),
        ("Phi3", {"pad_token_id": 0}),
        ("Gemma", {"head_dim": 16}),
        ("Gemma2", {"head_dim": 16}),
        ("Gemma3Text", {"head_dim": 16}),
        ("GPT2", {"n_positions": 96}),
    ],
)
@pytest.mark.parametrize("written", ["whole", "differences"])
def test_a_configuration_gives_the_very_number_of_parameters(kind, changes, written):
    """Also from a config.json that holds only what differs from the architecture's defaults, as those on the hub do."""
    import transformers

    sizes = SMALL if kind != "GPT2" else {"vocab_size": 500, "n_embd": 64, "n_layer": 3, "n_head": 4}
    config = getattr(transformers, f"{kind}Config")(**sizes, **changes)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    text = config.to_json_string(use_diff=written == "differences")
    shape = shape_of_config(json.loads(text), kind)
    assert shape.num_parameters == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("config", "window", "share"),
    [
        ({"model_type": "mistral", "sliding_window": 32}, 32, 1.0),
        ({"model_type": "mistral", "sliding_window": None}, None, 0.0),
        ({"model_type": "qwen2", "sliding_window": 32}, None, 0.0),  # named, but not used
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False}, None, 0.0),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True, "max_window_layers": 2}, 32, 1 / 3),
        ({"model_type": "gemma2", "sliding_window": 32}, 32, 2 / 3),  # every other layer, the first included
        ({"model_type": "gemma3_text", "sliding_window": 32, "sliding_window_pattern": 3}, 32, 2 / 3),
        ({"model_type": "gemma2", "sliding_window": 32, "layer_types": ["full_attention"] * 3}, None, 0.0),
    ],
)
def test_layers_that_slide(config, window, share):
    shape = shape_of_config(SMALL | config, "x")
    assert (shape.sliding_window, shape.sliding_share) == (window, pytest.approx(share))


@pytest.mark.parametrize("key", ["num_local_experts", "num_experts", "n_routed_experts"])
def test_a_mixture_of_experts_is_refused_by_name(key):
    with pytest.raises(UserError, match=f"mixture of experts .{key} = 8"):
        shape_of_config(SMALL | {"model_type": "mixtral", key: 8}, "x")


def test_the_text_part_of_a_multimodal_configuration_counts():
    whole = shape_of_config({"model_type": "gemma3", "text_config": SMALL | {"model_type": "gemma3_text"}}, "x")
    assert (whole.hidden_size, whole.qk_norm) == (64, True)


def test_published_sizes():
    billions = {n: s.num_parameters / 1e9 for n, s in model_shapes().items()}
    expected = {
        "llama-3.1-8b": 8.03,
        "llama-3.3-70b": 70.55,
        "gemma2-27b": 27.23,
        "tinyllama-1.1b": 1.10,
        "smollm2-135m": 0.1345,
    }
    assert billions == {n: pytest.approx(v, rel=2e-3) for n, v in expected.items()}


def test_the_real_model_has_its_catalogue_shape(tiny_gpt2):
    from genaccel import models

    source = models.resolve("smollm2-135m")
    ours = shape_of_config(json.loads((source.folder / "config.json").read_text()), "x")
    assert ours.num_parameters == find_shape("smollm2-135m").num_parameters
    gpt2 = shape_of_config(json.loads((tiny_gpt2 / "config.json").read_text()), "g")
    assert not gpt2.gated_mlp
    assert gpt2.tied_embeddings


def test_adapters_by_hand():
    shape = find_shape("smollm2-135m")
    # q and v of every layer: rank times (outputs + inputs).
    assert shape.adapter_weights(8, ("q_proj", "v_proj")) == 30 * 8 * ((576 + 576) + (192 + 576))
    assert shape.adapter_weights(8, ("c_attn",)) == shape.adapter_weights(8), "fused layers have names of their own"


def test_a_name_or_a_hub_id_finds_a_shape():
    assert find_shape("meta-llama/Llama-3.1-8B").name == "llama-3.1-8b"
    with pytest.raises(UserError) as caught:
        find_shape("llama-3.1-9b")
    assert "llama-3.1-8b" in caught.value.hint


def test_a_configuration_without_a_size_is_named():
    with pytest.raises(UserError, match="has no num_hidden_layers"):
        shape_of_config({"hidden_size": 4, "num_attention_heads": 2}, "x")
    with pytest.raises(UserError, match="has no intermediate_size"):
        shape_of_config({k: v for k, v in SMALL.items() if k != "intermediate_size"}, "x")


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("GAUDI", "gaudi1"),
        ("GAUDI2", "gaudi2"),
        ("GAUDI3", "gaudi3"),
        ("Intel(R) Xeon(R)", None),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA GH200 480GB", "gh200"),
        # Other cards, or slices of a card, whose peaks are others.
        ("NVIDIA GH200 144G HBM3e", None),
        ("NVIDIA H200 NVL", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("GAUDI4", None),
        ("", None),
    ],
)
def test_a_card_is_known_by_what_its_runtime_calls_it(device, name):
    card = accelerator_of(device)
    assert (card.name if card else None) == name
