"""Save, load, same logits: every format, every architecture; and every way a checkpoint can be broken."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from genaccel import devices, models
from genaccel.errors import UserError
from genaccel.plans import FORMATS, PrecisionPlan
from genaccel.quantize import checkpoint
from genaccel.quantize.layers import QuantizedLinear, choose_kernels, quantized_modules
from genaccel.store import whole_folder

IDS = torch.arange(2, 50).view(2, 24)


def plan_for(layout, form: str) -> PrecisionPlan:
    """``form`` for the second decoder layer, bf16 and fp32 elsewhere, so that formats are mixed."""
    formats = {w.name: "bf16" for w in layout.stored if w.layer is None}
    formats |= {layout.layer_name(0): "fp32", layout.layer_name(1): form}
    return PrecisionPlan("tiny", "cpu", "by hand", formats)


def save(folder, source, plan, mode="real"):
    layout = models.layout_of(source)
    with whole_folder(folder) as new:
        return checkpoint.write_checkpoint(new, source, layout, models.open_weights(source, layout), plan, mode)


def logits(model) -> torch.Tensor:
    with torch.inference_mode():
        return model(input_ids=IDS, use_cache=False).logits


@pytest.fixture
def cpu():
    return devices.get("cpu")


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


def test_a_tied_tensor_is_stored_once_and_shared(tmp_path, tiny_llama, cpu):
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    names = set(load_file(tmp_path / "out" / "model.safetensors"))
    assert not [n for n in names if n.startswith("lm_head")]
    model = checkpoint.load_checkpoint(tmp_path / "out", cpu)[0].model
    assert isinstance(model.lm_head, QuantizedLinear)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()


def test_kernels_are_remembered_for_this_machine_only(tmp_path, tiny_llama, cpu, monkeypatch):
    source = models.resolve(str(tiny_llama))
    info = save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    from dataclasses import replace

    odd = {"int8 64x64": ("dequantize_bf16", "dequantize_bf16", "dequantize_bf16")}
    machine = checkpoint.kernels_machine(cpu)
    checkpoint.write_info(tmp_path / "out", replace(info, kernels=odd, kernels_machine=machine))
    report = checkpoint.load_checkpoint(tmp_path / "out", cpu)[1]
    assert report["int8 64x64"] == {"kernels": list(odd["int8 64x64"]), "origin": "chosen when it was saved"}
    checkpoint.write_info(tmp_path / "out", replace(info, kernels=odd, kernels_machine="another"))
    assert "timed" in checkpoint.load_checkpoint(tmp_path / "out", cpu)[1]["int8 64x64"]["origin"]


def test_many_shards_load_as_one(tmp_path, tiny_llama_untied, cpu, monkeypatch):
    source = models.resolve(str(tiny_llama_untied))
    plan = plan_for(models.layout_of(source), "int4_g32")
    save(tmp_path / "one", source, plan)
    monkeypatch.setattr(checkpoint, "SHARD_BYTES", 20_000)
    save(tmp_path / "many", source, plan)
    files = sorted(p.name for p in (tmp_path / "many").glob("*.safetensors"))
    assert len(files) > 2
    assert files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"].values()) == set(files)
    one, many = (checkpoint.load_checkpoint(tmp_path / n, cpu)[0].model.state_dict() for n in ("one", "many"))
    assert all(torch.equal(one[k], many[k]) for k in one)


BREAKS = {
    "a tensor removed": (
        lambda t: t.pop("model.layers.1.mlp.up_proj.weight_scale"),
        "lacks tensor model.layers.1.mlp.up_proj",
    ),
    "a tensor too many": (lambda t: t.update(extra=torch.zeros(1)), "unknown tensor extra"),
    "another dtype": (
        lambda t: t.update({"model.layers.1.mlp.up_proj.weight": torch.zeros(128, 64)}),
        "model.layers.1.mlp.up_proj.weight is torch.float32",
    ),
    "another shape": (lambda t: t.update({"model.norm.weight": torch.zeros(65)}), "model.norm.weight is"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_checkpoint_is_refused_by_name(tmp_path, tiny_llama, cpu, how):
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    file = tmp_path / "out" / "model.safetensors"
    tensors = load_file(file)
    damage, message = BREAKS[how]
    damage(tensors)
    save_file(tensors, file)
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        checkpoint.load_checkpoint(tmp_path / "out", cpu)


def test_another_schema_and_an_unknown_key_are_refused(tmp_path, tiny_llama, cpu):
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    mark = tmp_path / "out" / "genaccel.json"
    data = json.loads(mark.read_text())
    mark.write_text(json.dumps(data | {"schema_version": 99}))
    with pytest.raises(UserError, match="schema 99"):
        checkpoint.load_checkpoint(tmp_path / "out", cpu)
    mark.write_text(json.dumps(data | {"mod": "real"}))
    with pytest.raises(UserError, match="unknown key 'mod'"):
        checkpoint.load_checkpoint(tmp_path / "out", cpu)


def test_plain_transformers_does_not_take_a_real_checkpoint_for_a_model(tmp_path, tiny_llama):
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    from transformers import AutoModelForCausalLM

    with pytest.raises(ValueError, match="Unrecognized model"):
        AutoModelForCausalLM.from_pretrained(tmp_path / "out")
