"""Save, load, same logits: every format, every architecture."""

from __future__ import annotations

import json
import shutil
import weakref
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.made_checkpoints import plan_for, save

from genaccel import model_folder, models
from genaccel.plans import FORMATS
from genaccel.quantize import checkpoint
from genaccel.quantize.layers import QuantizedLinear, choose_kernels, quantized_modules

IDS = torch.arange(2, 50).view(2, 24)


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits


@pytest.mark.parametrize("form", [n for n in FORMATS if n != "int4_g128"])
def test_saved_and_loaded_equals_in_memory_bit_for_bit(tmp_path, tiny_model, form, cpu):
    source = models.resolve(str(tiny_model))
    loaded = models.load(source)
    plan = plan_for(loaded.layout, form)
    report = checkpoint.quantize_in_memory(loaded, plan, "real", cpu)
    known = {key: tuple(value["kernels"]) for key, value in report.items()}

    info = save(tmp_path / "out", source, plan)
    again, _ = checkpoint.load_checkpoint(tmp_path / "out", cpu)
    choose_kernels(again.model, cpu, known)
    assert torch.equal(logits(again.model), logits(loaded.model))
    formats = again.layout.resolve(plan.formats)
    assert info.tensor_bytes == checkpoint.held_bytes(again.model) == again.layout.num_bytes(formats)


def test_logits_are_those_of_the_decoded_weights(tmp_path, tiny_model, cpu):
    """Independent of kernels and of our modules: plain transformers with the rounded weights put in."""
    source = models.resolve(str(tiny_model))
    plan = plan_for(models.layout_of(source), "int8")
    save(tmp_path / "real", source, plan, "real")
    save(tmp_path / "fake", source, plan, "fake")
    real, _ = checkpoint.load_checkpoint(tmp_path / "real", cpu)
    for module in quantized_modules(real.model).values():
        module.kernel_names = ("native_fp32" if module.form.name == "fp32" else "dequantize_fp32",) * 3
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "fake", dtype=torch.float32)
    assert torch.allclose(logits(real.model), logits(plain), rtol=1e-4, atol=1e-5)
    fake = models.load(source)
    checkpoint.quantize_in_memory(fake, plan, "fake", cpu)
    assert torch.equal(logits(plain), logits(fake.model))


def test_a_tied_tensor_is_stored_once_and_shared(saved, cpu):
    names = set(load_file(saved / "model.safetensors"))
    assert not [n for n in names if n.startswith("lm_head")]
    model = checkpoint.load_checkpoint(saved, cpu)[0].model
    assert isinstance(model.lm_head, QuantizedLinear)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_kernels_are_remembered_for_this_machine_only(tmp_path, tiny_llama, cpu, monkeypatch):
    source = models.resolve(str(tiny_llama))
    info = save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    odd = {"int8 64x64": ("dequantize_bf16", "dequantize_bf16", "dequantize_bf16")}
    machine = checkpoint.kernels_machine(cpu)
    checkpoint.write_info(tmp_path / "out", replace(info, kernels=odd, kernels_machine=machine))
    report = checkpoint.load_checkpoint(tmp_path / "out", cpu)[1]
    assert report["int8 64x64"] == {"kernels": list(odd["int8 64x64"]), "origin": "chosen when it was saved"}
    checkpoint.write_info(tmp_path / "out", replace(info, kernels=odd, kernels_machine="another"))
    assert "timed" in checkpoint.load_checkpoint(tmp_path / "out", cpu)[1]["int8 64x64"]["origin"]


def test_kernels_that_this_version_does_not_have_are_chosen_anew(tmp_path, tiny_llama, cpu):
    source = models.resolve(str(tiny_llama))
    info = save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    gone = {"int8 64x64": ("gone",) * 3, "int8 32x64": ("dequantize_fp32",)}
    machine = checkpoint.kernels_machine(cpu)
    checkpoint.write_info(tmp_path / "out", replace(info, kernels=gone, kernels_machine=machine))
    loaded, report = checkpoint.load_checkpoint(tmp_path / "out", cpu)
    assert all("timed" in report[key]["origin"] for key in gone)
    assert torch.isfinite(logits(loaded.model)).all()


SOURCES = {
    "rotary frequencies of old checkpoints": lambda t: (
        t | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    ),
    "the tied head stored too": lambda t: t | {"lm_head.weight": t["model.embed_tokens.weight"].clone()},
    "bf16": lambda t: {n: w.bfloat16() for n, w in t.items()},
}


@pytest.mark.parametrize("what", SOURCES)
@pytest.mark.parametrize("mode", ["real", "fake"])
def test_checkpoints_of_all_kinds_of_sources_load(tmp_path, tiny_llama, cpu, what, mode):
    shutil.copytree(tiny_llama, tmp_path / "m")
    tensors = SOURCES[what](load_file(tmp_path / "m" / "model.safetensors"))
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    save_file({"layers.0.wq": torch.ones(2)}, tmp_path / "m" / "consolidated.safetensors")
    source = models.resolve(str(tmp_path / "m"))
    plan = plan_for(models.layout_of(source), "int8")
    info = save(tmp_path / "out", source, plan, mode)
    again, _ = checkpoint.load_checkpoint(tmp_path / "out", cpu)
    plain = models.load(source)
    checkpoint.quantize_in_memory(plain, plan, mode, cpu)
    for model in (again.model, plain.model):
        for module in quantized_modules(model).values():
            module.kernel_names = ("native_fp32" if module.form.name == "fp32" else "dequantize_fp32",) * 3
    assert torch.equal(logits(again.model), logits(plain.model))
    layout = again.layout
    wanted = layout.fp32_bytes if mode == "fake" else layout.num_bytes(layout.resolve(plan.formats))
    assert info.tensor_bytes == wanted


def test_a_fake_checkpoint_is_plain_fp32_for_transformers(tmp_path, tiny_llama):
    """Older configurations say torch_dtype, and transformers would load fp32 weights as what it says."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    shutil.copytree(tiny_llama, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    config["torch_dtype"] = "bfloat16"
    del config["dtype"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    source = models.resolve(str(tmp_path / "m"))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"), "fake")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").dtype == torch.float32
    assert "torch_dtype" not in json.loads((tmp_path / "out" / "config.json").read_text())
    assert (
        AutoTokenizer.from_pretrained(tmp_path / "out")("abc").input_ids
        == models.load_tokenizer(source)("abc").input_ids
    )


def test_many_shards_load_as_one(tmp_path, tiny_llama_untied, cpu, monkeypatch):
    source = models.resolve(str(tiny_llama_untied))
    plan = plan_for(models.layout_of(source), "int4_g32")
    save(tmp_path / "one", source, plan)
    monkeypatch.setattr(model_folder, "SHARD_BYTES", 20_000)
    save(tmp_path / "many", source, plan)
    files = sorted(p.name for p in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    one, many = (checkpoint.load_checkpoint(tmp_path / n, cpu)[0].model.state_dict() for n in ("one", "many"))
    assert all(torch.equal(one[k], many[k]) for k in one)


class Watched:
    """Weights that count how many of the tensors they gave are still held."""

    def __init__(self, inner):
        self.inner, self.given, self.most = inner, [], 0

    def names(self):
        return self.inner.names()

    def get(self, name):
        tensor = self.inner.get(name)
        self.given.append(weakref.ref(tensor))
        self.most = max(self.most, sum(ref() is not None for ref in self.given))
        return tensor


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_weights_are_in_memory_one_after_the_other(tmp_path, tiny_llama, monkeypatch, mode):
    monkeypatch.setattr(model_folder, "SHARD_BYTES", 1)
    monkeypatch.setattr(model_folder, "MAX_SHARDS", 1 << 30)
    source = models.resolve(str(tiny_llama))
    layout = models.layout_of(source)
    weights = Watched(models.open_weights(source, layout))
    (tmp_path / "out").mkdir()
    checkpoint.write_checkpoint(tmp_path / "out", source, layout, weights, plan_for(layout, "int8"), mode)
    assert len(weights.given) > 15
    assert weights.most <= 3  # the one at work, the one before it, and the last matrix until the end


def test_plain_transformers_does_not_take_a_real_checkpoint_for_a_model(saved):
    from transformers import AutoModelForCausalLM

    with pytest.raises(ValueError, match="Unrecognized model"):
        AutoModelForCausalLM.from_pretrained(saved)
