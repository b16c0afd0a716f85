"""Quantized models on disk and back.

A real checkpoint is a folder: safetensors with the encoded tensors
(``NAME.weight`` and ``NAME.weight_scale``, or ``NAME.weight_packed``, ``_scale``, ``_minimum``), ``plan.toml``,
``genaccel.json`` (what it is), ``record.json``, and in ``base/`` the model's own configuration and tokenizer. They are
not at the top, because transformers would then load the encoded tensors as if they were the weights. Fake quantization gives a plain Hugging Face folder in fp32, which
anything can load. Weights stream through: one shard is in memory at a time, and a tied tensor is stored once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from genaccel import models
from genaccel.errors import UserError
from genaccel.layouts import walk
from genaccel.model_folder import copy_configuration, write_shards
from genaccel.models import LoadedModel, ModelSource
from genaccel.plans import Format, ModelLayout, PrecisionPlan, load_plan
from genaccel.quantize.formats import Parts, encode, part_shapes, round_to_
from genaccel.quantize.layers import EncodedWeight, allocate, choose_kernels, replace_weight
from genaccel.records import structure_strictly
from genaccel.store import CHECKPOINT_MARK, check_free_space, write_text
from genaccel.weights import FolderWeights, Weights

if TYPE_CHECKING:
    from genaccel.devices import Device

CHECKPOINT_SCHEMA = 1

Mode = Literal["fake", "real"]


@dataclass(frozen=True)
class CheckpointInfo:
    """``genaccel.json``: what a checkpoint is. ``kernels`` are those chosen on the machine ``kernels_machine``."""

    model: str
    mode: Mode
    target: str
    fp32_bytes: int
    tensor_bytes: int
    kernels_machine: str = ""
    kernels: dict[str, tuple[str, ...]] = field(default_factory=dict)
    schema_version: int = CHECKPOINT_SCHEMA


# --- Writing ----------------------------------------------------------------------------------------------------------


def write_checkpoint(
    folder: Path,
    source: ModelSource,
    layout: ModelLayout,
    weights: Weights,
    plan: PrecisionPlan,
    mode: Mode,
    advance: Callable[[str], None] = lambda _: None,
) -> CheckpointInfo:
    """Quantize ``weights`` by ``plan`` into ``folder`` (an empty one), tensor by tensor."""
    formats = layout.resolve(plan.formats)
    total = layout.fp32_bytes if mode == "fake" else layout.num_bytes(formats)
    check_free_space(folder, total)
    written = write_shards(folder, _encoded_tensors(layout, weights, formats, mode, advance), total)
    if mode == "real":
        (folder / "base").mkdir()
    copy_configuration(source, folder / "base" if mode == "real" else folder)
    plan.save(folder / "plan.toml")
    info = CheckpointInfo(source.name, mode, plan.target, layout.fp32_bytes, written)
    write_info(folder, info)
    return info


def write_info(folder: Path, info: CheckpointInfo) -> None:
    """Write ``genaccel.json``."""
    write_text(folder / CHECKPOINT_MARK, json.dumps(asdict(info), indent=1) + "\n")


def _encoded_tensors(
    layout: ModelLayout, weights: Weights, formats: dict[str, Format], mode: Mode, advance: Callable[[str], None]
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of everything to store, in the model's order, each made when it is asked for."""
    names = set(weights.names())
    for info in layout.stored:
        tensor_name = f"{info.name}.weight"
        weight = oriented(weights.get(tensor_name), info.transposed)
        if mode == "fake":
            rounded = weight.to(torch.float32, copy=True)
            round_to_(rounded, formats[info.name], info.name)
            yield tensor_name, oriented(rounded, info.transposed).contiguous()
        else:
            for suffix, part in encode(weight, formats[info.name], info.name).items():
                yield f"{info.name}.{suffix}", part.contiguous()
        advance(info.name)
    matrices = {f"{w.name}.weight" for w in layout.weights}
    for name in sorted(names - matrices):
        other = weights.get(name)
        if other.is_floating_point():
            if not torch.isfinite(other).all():
                raise UserError(
                    f"{name} holds values that are not finite.", "The checkpoint is damaged; fetch it again."
                )
            other = other.to(torch.float32)
        yield name, other.contiguous()


def oriented(weight: torch.Tensor, transposed: bool) -> torch.Tensor:
    """(outputs, inputs) from the stored order and back: GPT-2's Conv1D stores (inputs, outputs)."""
    return weight.t() if transposed else weight


def source_of(folder: Path) -> ModelSource:
    """A checkpoint as a model source, under the name of the model it was made from."""
    base = folder / "base"
    return ModelSource(read_info(folder).model, base if base.is_dir() else folder, folder)


# --- Loading ----------------------------------------------------------------------------------------------------------


def is_checkpoint(name: str) -> bool:
    """Whether ``name`` is a folder written by ``write_checkpoint``."""
    return (Path(name) / CHECKPOINT_MARK).is_file()


def read_info(folder: Path) -> CheckpointInfo:
    """``genaccel.json``, strictly."""
    try:
        data = json.loads((folder / CHECKPOINT_MARK).read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / CHECKPOINT_MARK} cannot be read: {error}.", "Quantize the model again.") from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != CHECKPOINT_SCHEMA:
        raise UserError(
            f"{folder} has checkpoint schema {version}, this genaccel reads {CHECKPOINT_SCHEMA}.",
            "Quantize the model again.",
        )
    return structure_strictly(CheckpointInfo, data, str(folder / CHECKPOINT_MARK))


def load_any(name: str, device: Device) -> tuple[LoadedModel, dict[str, Any]]:
    """A checkpoint of ours or any model that ``models.resolve`` finds, on ``device``; with its kernel report."""
    if is_checkpoint(name):
        return load_checkpoint(Path(name), device)
    loaded = models.load(models.resolve(name))
    loaded.model.to(device.torch_device())
    return loaded, {}


def load_checkpoint(folder: Path, device: Device) -> tuple[LoadedModel, dict[str, Any]]:
    """The quantized model in ``folder`` on ``device`` and its kernel report.

    Kernels chosen when it was saved are used again on a machine like that one; elsewhere they are chosen anew. Missing,
    unknown or wrongly shaped tensors are errors that name the tensor.
    """
    info = read_info(folder)
    source = source_of(folder)
    if info.mode == "fake":
        loaded = models.load(source)
        loaded.model.to(device.torch_device())
        return loaded, {}
    model = models.empty_model(source.folder)
    layout = walk(model)
    formats = layout.resolve(load_plan(folder / "plan.toml").formats)
    place = device.torch_device()
    allocate(model, layout, formats, place)
    _fill(model, layout, formats, FolderWeights(folder), place)
    known = info.kernels if info.kernels_machine == kernels_machine(device) else None
    report = choose_kernels(model, device, known)
    return LoadedModel(model.eval(), models.load_tokenizer(source), info.model, layout), report


def _fill(model: Any, layout: ModelLayout, formats: dict[str, Format], weights: Weights, place: torch.device) -> None:
    """Copy every stored tensor to its place; anything too many, too few or of another shape or dtype is an error."""
    expected: dict[str, tuple[tuple[int, ...], torch.dtype]] = {}
    for info in layout.stored:
        for suffix, stored in part_shapes(info.shape, formats[info.name]).items():
            expected[f"{info.name}.{suffix}"] = stored
    others = {n: p for n, p in model.named_parameters() if p.device.type == "meta"}
    expected |= {n: (tuple(p.shape), torch.float32) for n, p in others.items()}
    tied = {f"{w.name}.{part}" for w in layout.weights if w.tied_to for part in part_shapes(w.shape, formats[w.name])}
    persistent = set(model.state_dict()) - set(expected) - tied
    names = set(weights.names())
    for problem, found in (("lacks", set(expected) - names), ("has an unknown", names - set(expected) - persistent)):
        if found:
            raise UserError(
                f"The checkpoint {problem} tensor {sorted(found)[0]}.",
                "It does not fit its plan; quantize the model again.",
            )
    for name in sorted(names & set(expected)):
        tensor = weights.get(name)
        shape, dtype = expected[name]
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise UserError(
                f"Tensor {name} is {tensor.dtype} {tuple(tensor.shape)}, but the plan asks for {dtype} {shape}.",
                "The checkpoint does not fit its plan; quantize the model again.",
            )
        parent, _, child = name.rpartition(".")
        module = model.get_submodule(parent)
        if name in others:
            setattr(module, child, torch.nn.Parameter(tensor.to(place, copy=True), requires_grad=False))
        else:
            getattr(module, child).copy_(tensor)
    for name in sorted(names & persistent):
        parent, _, child = name.rpartition(".")
        getattr(model.get_submodule(parent), child).copy_(weights.get(name))
    model.to(place)  # buffers that no checkpoint holds, such as rotary frequencies


def kernels_machine(device: Device) -> str:
    """Tells machines apart on which kernels may be chosen differently."""
    return "; ".join([device.NAME, f"torch {torch.__version__}", *(f"{k} {v}" for k, v in device.describe().items())])


# --- In memory --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def quantize_in_memory(loaded: LoadedModel, plan: PrecisionPlan, mode: Mode, device: Device) -> dict[str, Any]:
    """Quantize a loaded model in place, weight by weight; returns its kernel report (empty for fake)."""
    layout, model = loaded.layout, loaded.model
    formats = layout.resolve(plan.formats)
    for info in layout.stored:
        parameter = model.get_submodule(info.name).weight
        if mode == "fake":
            rounded = oriented(parameter.detach(), info.transposed).contiguous()
            round_to_(rounded, formats[info.name], info.name)
            parameter.copy_(oriented(rounded, info.transposed))
        else:
            parts: Parts = encode(oriented(parameter.detach(), info.transposed), formats[info.name], info.name)
            replace_weight(model, layout, info.name, formats[info.name], parts)
    return choose_kernels(model, device) if mode == "real" else {}


def held_bytes(model: torch.nn.Module) -> int:
    """Bytes of all tensors a model must keep: parameters and stored parts, shared ones once, other buffers left out."""
    tensors: dict[int, torch.Tensor] = {id(p): p for p in model.parameters()}
    for module in model.modules():
        if isinstance(module, EncodedWeight):
            tensors |= {id(part): part for part in module.parts().values()}
    return sum(t.numel() * t.element_size() for t in tensors.values())
