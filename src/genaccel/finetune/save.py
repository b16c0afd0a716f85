"""Final weights as a plain Hugging Face folder; those of LoRA merged, with the adapter beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from genaccel.model_folder import copy_configuration, write_shards
from genaccel.store import TRAINED_MARK, check_free_space, whole_folder, write_text
from genaccel.weights import Weights

if TYPE_CHECKING:
    from genaccel.models import ModelSource
    from genaccel.plans import ModelLayout


@dataclass(frozen=True)
class Adapter:
    """Settings of LoRA as peft has them, and its trained matrices by name."""

    settings: Any
    tensors: dict[str, torch.Tensor]

    def delta(self, name: str) -> torch.Tensor | None:
        """What the adapter adds to the weight of the layer ``name``, (outputs, inputs), or None."""
        a = self.tensors.get(f"{name}.lora_A.default.weight")
        if a is None:
            return None
        scale = float(self.settings.lora_alpha) / float(self.settings.r)
        return scale * (self.tensors[f"{name}.lora_B.default.weight"] @ a)


def save_trained(folder: Path, source: ModelSource, layout: ModelLayout, trained: dict[str, torch.Tensor]) -> None:
    """Write fully trained weights to ``folder``, which loads like any model folder."""
    with whole_folder(folder) as new:
        _write_model(new, source, layout, iter(trained.items()), "trained")


def save_adapted(folder: Path, source: ModelSource, layout: ModelLayout, base: Weights, adapter: Adapter) -> None:
    """Write the merged model to ``folder`` and the adapter, as peft has it, to ``folder``/adapter."""
    from safetensors.torch import save_file

    with whole_folder(folder) as new:
        _write_model(new, source, layout, merged(layout, base, adapter), "merged")
        (new / "adapter").mkdir()
        adapter.settings.base_model_name_or_path = source.name
        adapter.settings.save_pretrained(new / "adapter")
        names = {name: f"base_model.model.{name.replace('.default', '')}" for name in adapter.tensors}
        save_file(
            {names[n]: t.contiguous() for n, t in adapter.tensors.items()}, new / "adapter/adapter_model.safetensors"
        )


def merged(layout: ModelLayout, base: Weights, adapter: Adapter) -> Iterator[tuple[str, torch.Tensor]]:
    """The base weights with the adapter added, one at a time, in fp32; tied ones once."""
    transposed = {w.name: w.transposed for w in layout.stored}
    tied = {f"{w.name}.weight" for w in layout.weights if w.tied_to}
    for name in sorted(set(base.names()) - tied):
        weight, layer = base.get(name), name.removesuffix(".weight")
        delta = adapter.delta(layer)
        if delta is not None:
            weight = weight.float() + (delta.t() if transposed[layer] else delta)
        yield name, (weight.float() if weight.is_floating_point() else weight).contiguous()


def _write_model(
    new: Path, source: ModelSource, layout: ModelLayout, tensors: Iterator[tuple[str, torch.Tensor]], how: str
) -> None:
    check_free_space(new, layout.fp32_bytes)
    write_shards(new, tensors, layout.fp32_bytes)
    copy_configuration(source, new)
    write_text(new / TRAINED_MARK, json.dumps({"model": source.name, "made_by": f"finetune ({how})"}, indent=1) + "\n")
