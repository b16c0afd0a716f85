"""Finding models, refusing what must not be loaded, streaming weights."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from genaccel import models
from genaccel.errors import UserError
from genaccel.weights import FolderWeights, ModelWeights


def test_layouts_count_every_parameter_once(tiny_model):
    loaded = models.load(models.resolve(str(tiny_model)))
    unique = {id(p): p.numel() for p in loaded.model.parameters()}
    assert loaded.layout.fp32_bytes == 4 * sum(unique.values())
    assert models.layout_of(models.resolve(str(tiny_model))) == loaded.layout
    for weight in loaded.layout.weights:
        stored = loaded.model.get_submodule(weight.name).weight
        assert weight.shape == tuple(stored.shape[::-1] if weight.transposed else stored.shape)


# --- Finding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence", "hint"),
    [
        ("smollm2-135", "no model 'smollm2-135'", "Did you mean smollm2-135m"),
        ("./nothing/here", "no model './nothing/here'", "A folder, a .gguf file or a hub id works too."),
        ("~nobody-of-that-name/model", "no model '~nobody-of-that-name/model'", "A folder"),
        ("nothing.gguf", "no model 'nothing.gguf'", "A folder"),
        ("owner/model", "could not be had from the hub: ", "smollm2-135m"),
        ("owner/mo del?", "could not be had from the hub: ", "smollm2-135m"),
    ],
)
def test_a_name_that_nothing_has_is_refused(name, sentence, hint):
    with pytest.raises(UserError) as caught:
        models.resolve(name)
    assert sentence in caught.value.message
    assert hint in caught.value.hint


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"")
    with pytest.raises(UserError, match="neither a model folder nor"):
        models.resolve(str(tmp_path / "model.bin"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUFgarbage", b"no GGUF at all" * 100])
def test_a_broken_gguf_file_is_refused_and_leaves_nothing(tmp_path, monkeypatch, content):
    monkeypatch.setenv("GENACCEL_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.gguf").write_bytes(content)
    with pytest.raises(UserError, match=r"model\.gguf cannot be read as a GGUF model"):
        models.resolve(str(tmp_path / "model.gguf"))
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_dir() and p.name.startswith((".", "model-"))]


# --- Refusing ---------------------------------------------------------------------------------------------------------


def broken(folder, tiny_llama, change) -> str:
    shutil.copytree(tiny_llama, folder)
    change(folder)
    return str(folder)


def config_with(**changes):
    def change(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return change


def config_text(text):
    return lambda folder: (folder / "config.json").write_text(text)


def tensors_with(change):
    def apply(folder):
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return apply


def only(name):
    def change(folder):
        (folder / "model.safetensors").unlink()
        if name:
            (folder / name).write_bytes(b"")

    return change


def truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


UP = "model.layers.1.mlp.up_proj.weight"
REFUSED = {
    "pickled weights": (only("pytorch_model.bin"), r"only pickled weights \(pytorch_model\.bin\)"),
    "no weights": (only(None), "holds no weights; genaccel loads safetensors only"),
    "code of its own": (config_with(auto_map={"AutoModel": "evil.Model"}), "code that it brings along"),
    "no configuration": (lambda f: (f / "config.json").unlink(), r"config\.json is missing"),
    "a torn configuration": (config_text("{"), "not JSON"),
    "a list for a configuration": (config_text("[]"), "holds no configuration of a model"),
    "null for a configuration": (config_text("null"), "holds no configuration of a model"),
    "an empty configuration": (config_text("{}"), "model_type"),
    "an unknown architecture": (config_with(model_type="llamma"), "llamma"),
    "no language model": (config_with(model_type="t5"), "T5Config"),
    "a word for a number": (config_with(num_hidden_layers="two"), "field 'num_hidden_layers'.*expected int"),
    "no heads": (config_with(num_attention_heads=0), "transformers cannot load"),
    "a width that heads do not divide": (config_with(hidden_size=65), r"hidden size \(65\) is not a multiple"),
    "an unknown activation": (config_with(hidden_act="relux"), "relux"),
    "a format of others": (config_with(quantization_config={"quant_method": "gptq", "bits": 4}), "GPTQ"),
    "a torn file": (truncated, "transformers cannot load"),
    "a tensor too few": (tensors_with(lambda t: t.pop(UP)), re.escape(f"missing keys: {UP}")),
    "another shape": (
        tensors_with(lambda t: t.update({UP: torch.zeros(127, 64)})),
        f"mismatched keys: .*{re.escape(UP)}",
    ),
    "more layers than configured": (config_with(num_hidden_layers=1), r"unexpected keys: model\.layers\.1\."),
    "fewer layers than configured": (config_with(num_hidden_layers=3), r"missing keys: model\.layers\.2\."),
    "another vocabulary": (config_with(vocab_size=300), r"mismatched keys: .*model\.embed_tokens\.weight"),
    "an untied head that is not there": (config_with(tie_word_embeddings=False), r"missing keys: lm_head\.weight"),
    "no tokenizer": (lambda f: [t.unlink() for t in f.glob("tokenizer*")], "tokenizer"),
    "a torn tokenizer": (lambda f: (f / "tokenizer.json").write_text("{"), "transformers cannot load"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_folder_that_must_not_be_loaded_is_refused(tmp_path, tiny_llama, what):
    change, sentence = REFUSED[what]
    name = broken(tmp_path / "m", tiny_llama, change)
    with pytest.raises(UserError, match=sentence):
        models.load(models.resolve(name))


# --- Streaming --------------------------------------------------------------------------------------------------------


def no_prefix(tensors):
    for name in list(tensors):
        tensors[name.removeprefix("transformer.")] = tensors.pop(name)


HARMLESS = {
    "rotary frequencies of old checkpoints": lambda t: t.update(
        {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    ),
    "the tied head a second time": lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}),
    "another head": lambda t: t.update({"score.weight": torch.ones(2, 64)}),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_tensors_that_the_model_does_not_need_are_left_out(tmp_path, tiny_llama, what):
    name = broken(tmp_path / "m", tiny_llama, tensors_with(HARMLESS[what]))
    assert_gives_what_is_loaded(name, FolderWeights)


def test_names_without_the_models_prefix_go_through_transformers(tmp_path, tiny_gpt2):
    """As GPT-2 lies on the hub."""
    assert_gives_what_is_loaded(broken(tmp_path / "m", tiny_gpt2, tensors_with(no_prefix)), ModelWeights)


def test_every_architecture_streams(tiny_model):
    assert_gives_what_is_loaded(str(tiny_model), FolderWeights)


def assert_gives_what_is_loaded(name: str, kind: type) -> None:
    source = models.resolve(name)
    loaded = models.load(source)
    weights = models.open_weights(source, loaded.layout)
    assert type(weights) is kind
    expected = dict(loaded.model.named_parameters())
    assert set(expected) <= set(weights.names()) <= set(loaded.model.state_dict())
    for parameter, tensor in expected.items():
        assert torch.equal(weights.get(parameter), tensor)


@pytest.mark.parametrize("what", ["a tensor too few", "more layers than configured", "fewer layers than configured"])
def test_what_does_not_fit_is_not_streamed(tmp_path, tiny_llama, what):
    change, sentence = REFUSED[what]
    source = models.resolve(broken(tmp_path / "m", tiny_llama, change))
    with pytest.raises(UserError, match=sentence):
        models.open_weights(source, models.layout_of(source))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_in_half_precision_are_loaded_as_fp32(tmp_path, tiny_llama, dtype):
    def narrow(tensors):
        tensors.update({n: t.to(dtype) for n, t in tensors.items()})

    model = models.load(models.resolve(broken(tmp_path / "m", tiny_llama, tensors_with(narrow)))).model
    plain = models.load(models.resolve(str(tiny_llama))).model
    for name, parameter in model.named_parameters():
        assert parameter.dtype == torch.float32
        assert torch.equal(parameter, plain.get_parameter(name).to(dtype).float())


def test_fingerprints_tell_models_apart(tmp_path, tiny_llama):
    source = models.resolve(str(tiny_llama))
    assert source.fingerprint() == models.resolve(str(tiny_llama)).fingerprint()

    def one_weight(folder):
        tensors = load_file(folder / "model.safetensors")
        tensors["model.layers.1.mlp.up_proj.weight"][0, 0] += 1
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    assert models.resolve(broken(tmp_path / "m", tiny_llama, one_weight)).fingerprint() != source.fingerprint()
