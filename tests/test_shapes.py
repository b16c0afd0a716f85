"""Shapes: parameter counts equal those of the models that transformers builds, without memory, from their configurations."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from genaccel.errors import UserError
from genaccel.hardware import accelerator_of
from genaccel.shapes import find_shape, model_shapes, shape_of_config


def configuration(shape):
    import transformers

    if shape.name.startswith("mpt"):
        return transformers.MptConfig(
            d_model=shape.hidden_size,
            n_heads=shape.num_heads,
            n_layers=shape.num_layers,
            vocab_size=shape.vocab_size,
            max_seq_len=shape.context,
        )
    families = {"gemma2": "Gemma2", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen2"}
    family = families.get(shape.name.partition("-")[0], "Llama")
    of_family = {
        "Mixtral": {"num_local_experts": shape.num_experts, "num_experts_per_tok": shape.experts_per_token},
        "Mistral": {"sliding_window": shape.sliding_window},
    }
    return getattr(transformers, f"{family}Config")(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        tie_word_embeddings=shape.tied_embeddings,
        max_position_embeddings=shape.context,
        **of_family.get(family, {}),
    )


# transformers has no MPT with the biases and learned positions of the training recipes; those are compared below.
BUILDABLE = sorted(n for n, s in model_shapes().items() if not s.learned_positions)


@pytest.mark.parametrize("name", BUILDABLE)
def test_parameters_equal_those_of_the_built_model(name):
    from transformers import AutoModelForCausalLM

    shape = find_shape(name)
    config = configuration(shape)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert shape.num_parameters == sum(p.numel() for p in model.parameters())
    if shape.num_experts > 1:
        return
    again = shape_of_config(json.loads(config.to_json_string()), name)
    assert again.num_parameters == shape.num_parameters
    assert (again.linear_shapes, again.context) == (shape.linear_shapes, shape.context)
    assert (again.sliding_window, again.sliding_share) == (shape.sliding_window, shape.sliding_share)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Model cards and the totals of the checkpoints' own indices.
        ("llama-2-7b", 6_738_415_616),
        ("llama-2-13b", 13_015_864_320),
        ("llama-2-70b", 68_976_648_192),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.3-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2-7b", 7_615_616_512),
        ("qwen2-72b", 72_706_203_648),
        ("gemma2-2b", 2_614_341_888),
        ("gemma2-9b", 9_241_705_984),
        ("gemma2-27b", 27_227_128_320),
        ("tinyllama-1.1b", 1_100_048_384),
        ("smollm2-135m", 134_515_008),
        ("mpt-7b-released", 6_649_286_656),
    ],
)
def test_published_parameter_counts(name, parameters):
    assert find_shape(name).num_parameters == parameters


@pytest.mark.parametrize(
    ("size", "length", "parameters"),
    [
        # llm-foundry@8c8dd48, scripts/train/benchmarking/README.md: NumParams of runs of this sequence length.
        ("125m", 65536, 174_070_272),
        ("350m", 65536, 420_997_120),
        ("760m", 32768, 807_656_448),
        ("1b", 2048, 1_315_950_592),
        ("3b", 2048, 2_651_837_440),
        ("7b", 2048, 6_658_859_008),
        ("13b", 2048, 12_853_954_560),
        ("30b", 2048, 29_975_214_080),
        ("70b", 2048, 64_862_437_376),
    ],
)
def test_parameters_of_mpt_as_its_trainer_counts_them(size, length, parameters):
    assert replace(find_shape(f"mpt-{size}"), learned_positions=length).num_parameters == parameters


def test_a_token_goes_through_some_experts():
    """Mixtral's paper gives 13 billion active parameters of 47."""
    shape = find_shape("mixtral-8x7b")
    assert shape.num_active_parameters == pytest.approx(12.9e9, rel=0.01)
    mlp = 3 * 4096 * 14336
    assert shape.layer_weights - shape.active_layer_weights == 6 * mlp
    dense = find_shape("mistral-7b")
    assert dense.active_layer_weights == dense.layer_weights
    assert dense.num_active_parameters == dense.num_parameters


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
        ("Mpt", {"max_seq_len": 96}),
    ],
)
@pytest.mark.parametrize("written", ["whole", "differences"])
def test_a_configuration_gives_the_very_number_of_parameters(kind, changes, written):
    """Also from a config.json that holds only what differs from the architecture's defaults, as those on the hub do."""
    import transformers

    own_names = {
        "GPT2": {"vocab_size": 500, "n_embd": 64, "n_layer": 3, "n_head": 4},
        "Mpt": {"vocab_size": 500, "d_model": 64, "n_layers": 3, "n_heads": 4},
    }
    sizes = own_names.get(kind, SMALL)
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
