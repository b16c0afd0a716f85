"""Every way in which a checkpoint can be broken, and every way in which writing one can end early."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.made_checkpoints import plan_for, save

from genaccel import model_folder, models
from genaccel.errors import UserError
from genaccel.quantize import checkpoint

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
    "a tied head beside its embedding": (
        lambda t: t.update({"lm_head.weight": torch.zeros(258, 64, dtype=torch.bfloat16)}),
        "unknown tensor lm_head.weight",
    ),
    "another shape": (lambda t: t.update({"model.norm.weight": torch.zeros(65)}), "model.norm.weight is"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_checkpoint_is_refused_by_name(saved, cpu, how):
    file = saved / "model.safetensors"
    tensors = load_file(file)
    damage, message = BREAKS[how]
    damage(tensors)
    save_file(tensors, file)
    with pytest.raises(UserError, match=message.replace(".", r"\.")):
        checkpoint.load_checkpoint(saved, cpu)


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("genaccel.json", "{", r"genaccel\.json cannot be read"),
        ("genaccel.json", "[]", "checkpoint schema None"),
        ("genaccel.json", None, r"genaccel\.json cannot be read"),
        ("plan.toml", None, r"plan\.toml cannot be read"),
        ("plan.toml", "[", "is not TOML"),
        ("base/config.json", None, "transformers cannot load"),
        ("model.safetensors", "", "not a whole safetensors file"),
        ("model.safetensors", None, "lacks tensor"),
    ],
)
def test_a_checkpoint_with_a_broken_or_missing_file_is_refused(saved, cpu, file, text, sentence):
    path = saved / file
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        checkpoint.load_checkpoint(saved, cpu)


def test_a_plan_that_was_edited_after_quantizing_is_noticed(saved, cpu):
    plan = saved / "plan.toml"
    plan.write_text(plan.read_text().replace("int8", "fp8_e4m3"))
    with pytest.raises(UserError, match=r"the plan asks for torch\.float8_e4m3fn"):
        checkpoint.load_checkpoint(saved, cpu)


def test_a_missing_shard_is_told(tmp_path, tiny_llama, cpu, monkeypatch):
    monkeypatch.setattr(model_folder, "SHARD_BYTES", 20_000)
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    next((tmp_path / "out").glob("model-00002-*")).unlink()
    with pytest.raises(UserError, match="A shard is missing"):
        checkpoint.load_checkpoint(tmp_path / "out", cpu)


def test_weights_that_cannot_be_stored_leave_no_folder(tmp_path, tiny_llama):
    shutil.copytree(tiny_llama, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["model.layers.1.mlp.down_proj.weight"][3, 3] = float("nan")
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    source = models.resolve(str(tmp_path / "m"))
    for mode in ("real", "fake"):
        with pytest.raises(UserError, match=r"layers\.1\.mlp\.down_proj holds weights that are not finite"):
            save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"), mode)
    tensors["model.layers.1.mlp.down_proj.weight"][3, 3] = 0
    tensors["model.norm.weight"][5] = float("inf")
    save_file(tensors, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"model\.norm\.weight holds values that are not finite"):
        save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_disk_that_fills_up_is_said_and_leaves_nothing(tmp_path, tiny_llama, monkeypatch):
    """safetensors wraps the system's error in one of its own."""
    import safetensors.torch
    from safetensors import SafetensorError

    def full(*_, **__):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    source = models.resolve(str(tiny_llama))
    with pytest.raises(UserError, match="disk is full"):
        save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    assert not list(tmp_path.iterdir())


def test_another_schema_and_an_unknown_key_are_refused(saved, cpu):
    mark = saved / "genaccel.json"
    data = json.loads(mark.read_text())
    mark.write_text(json.dumps(data | {"schema_version": 99}))
    with pytest.raises(UserError, match="schema 99"):
        checkpoint.load_checkpoint(saved, cpu)
    mark.write_text(json.dumps(data | {"mod": "real"}))
    with pytest.raises(UserError, match="unknown key 'mod'"):
        checkpoint.load_checkpoint(saved, cpu)
