"""Finding, refusing, walking and rewriting models."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from genaccel import models
from genaccel.degrid import degrid_llama_
from genaccel.errors import UserError
from genaccel.layouts import walk


def test_layouts_count_every_parameter_once(tiny_model):
    loaded = models.load(models.resolve(str(tiny_model)))
    unique = {id(p): p.numel() for p in loaded.model.parameters()}
    assert loaded.layout.fp32_bytes == 4 * sum(unique.values())
    assert models.layout_of(models.resolve(str(tiny_model))) == loaded.layout
    for weight in loaded.layout.weights:
        stored = loaded.model.get_submodule(weight.name).weight
        assert weight.shape == tuple(stored.shape[::-1] if weight.transposed else stored.shape)


def test_walk_knows_layers_ties_and_orders(tiny_llama, tiny_llama_untied, tiny_gpt2):
    tied, untied, gpt2 = (models.layout_of(models.resolve(str(m))) for m in (tiny_llama, tiny_llama_untied, tiny_gpt2))
    assert (tied.layer_prefix, tied.num_layers, tied.max_positions) == ("model.layers", 2, 128)
    assert [w.tied_to for w in tied.weights if w.role == "head"] == ["model.embed_tokens"]
    assert [w.tied_to for w in untied.weights if w.role == "head"] == [None]
    assert [w.name.rsplit(".", 1)[1] for w in tied.weights if w.layer == 1] == [
        "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj",
    ]  # fmt: skip
    assert {w.transposed for w in gpt2.weights if w.layer is not None} == {True}
    assert next(w.shape for w in gpt2.weights if w.name == "transformer.h.0.attn.c_attn") == (192, 64)


def test_fused_experts_are_refused_by_name():
    from transformers import AutoModelForCausalLM, MixtralConfig

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=2,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(UserError, match=r"model\.layers\.0\..*which genaccel cannot quantize"):
        walk(model)


def test_a_linear_layer_that_computes_something_else_is_refused(tiny_llama):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = models.load(models.resolve(str(tiny_llama))).model
    model.model.layers[1].mlp.up_proj = Doubled(64, 128, bias=False)
    with pytest.raises(UserError, match=r"layers\.1\.mlp\.up_proj.*Doubled"):
        walk(model)


def broken(folder, tiny_llama, change):
    shutil.copytree(tiny_llama, folder)
    change(folder)
    return str(folder)


def only_pickles(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")


def own_code(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "evil.Model"}}))


def truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def lacking(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (only_pickles, r"only pickled weights \(pytorch_model.bin\)"),
        (own_code, "never runs"),
        (lambda f: (f / "config.json").write_text("{"), "not JSON"),
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (truncated, "safetensors|transformers cannot load"),
        (lacking, r"model\.layers\.1\.mlp\.up_proj"),
    ],
)
def test_a_folder_that_must_not_be_loaded_is_refused(tmp_path, tiny_llama, change, sentence):
    name = broken(tmp_path / "m", tiny_llama, change)
    with pytest.raises(UserError, match=sentence):
        models.load(models.resolve(name))


def test_fingerprints_tell_models_apart(tmp_path, tiny_llama):
    source = models.resolve(str(tiny_llama))
    assert source.fingerprint() == models.resolve(str(tiny_llama)).fingerprint()

    def one_weight(folder):
        tensors = load_file(folder / "model.safetensors")
        tensors["model.layers.1.mlp.up_proj.weight"][0, 0] += 1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert models.resolve(broken(tmp_path / "m", tiny_llama, one_weight)).fingerprint() != source.fingerprint()


def relative_change(before, after) -> float:
    return float((before - after).norm() / before.norm())


@torch.no_grad()
@pytest.mark.parametrize("name", ["tiny", pytest.param("smollm2-135m", marks=pytest.mark.slow)])
def test_degridding_changes_weights_but_not_what_is_computed(tiny_llama, name):
    model = models.load(models.resolve(str(tiny_llama) if name == "tiny" else name)).model
    ids = torch.arange(2, 34)[None]
    before = model(ids).logits
    weights = {n: p.clone() for n, p in model.named_parameters() if "_proj" in n}
    degrid_llama_(model)
    assert relative_change(before, model(ids).logits) < 1e-4
    changed = {n: relative_change(w, model.get_parameter(n)) for n, w in weights.items()}
    assert min(changed.values()) > 0.01
    assert all((layer.input_layernorm.weight == 1).all() for layer in model.model.layers)
