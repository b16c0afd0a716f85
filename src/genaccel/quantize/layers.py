"""Modules that hold an encoded weight: the real thing, whose memory shrinks. The model around them stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from genaccel.plans import Format, ModelLayout
from genaccel.quantize import kernels
from genaccel.quantize.formats import Parts, decode, part_shapes

if TYPE_CHECKING:
    from genaccel.devices import Device


class EncodedWeight(torch.nn.Module):
    """The stored tensors of one weight, as buffers, with their format."""

    def __init__(self, form: Format, parts: Parts) -> None:
        super().__init__()
        self.form = form
        self.part_names = tuple(parts)
        for name, part in parts.items():
            self.register_buffer(name, part)

    def parts(self) -> Parts:
        """The stored tensors by suffix."""
        return {name: getattr(self, name) for name in self.part_names}


class QuantizedLinear(EncodedWeight):
    """y = x W^T + b with an encoded W (outputs, inputs); the bias stays in fp32.

    Takes the place of ``nn.Linear`` and of GPT-2's ``Conv1D``. ``kernel_names`` are those for one, few and many rows.
    """

    def __init__(self, form: Format, parts: Parts, shape: tuple[int, int], bias: torch.nn.Parameter | None) -> None:
        super().__init__(form, parts)
        self.out_features, self.in_features = shape
        self.bias = bias
        self.kernel_names: tuple[str, ...] = ("native_fp32" if form.name == "fp32" else "dequantize_fp32",) * 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x (..., inputs) -> (..., outputs), in x's dtype."""
        flat = x.reshape(-1, self.in_features)
        y = kernels.BY_NAME[self._kernel_for(flat.shape[0])].multiply(flat, self.parts(), self.form)
        if self.bias is not None:
            y = y + self.bias
        return y.view(*x.shape[:-1], self.out_features)

    def _kernel_for(self, num_rows: int) -> str:
        for (_, bound), name in zip(kernels.ROW_CLASSES, self.kernel_names, strict=True):
            if num_rows <= bound:
                return name
        raise AssertionError("the last class has no bound")

    def extra_repr(self) -> str:
        """Shape, format and kernels for ``print(model)``."""
        return (
            f"{self.in_features}, {self.out_features}, format={self.form.name}, kernels={'/'.join(self.kernel_names)}"
        )


class QuantizedEmbedding(EncodedWeight):
    """Rows of an encoded embedding, decoded as they are looked up, times ``embed_scale`` where the model has one."""

    def __init__(self, form: Format, parts: Parts, shape: tuple[int, int], replaced: torch.nn.Module) -> None:
        super().__init__(form, parts)
        self.num_embeddings, self.embedding_dim = shape
        self.padding_idx = getattr(replaced, "padding_idx", None)
        self.embed_scale = float(getattr(replaced, "embed_scale", 1.0))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """ids (...) -> fp32 (..., width)."""
        rows = {name: part[ids.reshape(-1)] for name, part in self.parts().items()}
        return decode(rows, self.form).view(*ids.shape, self.embedding_dim) * self.embed_scale

    def extra_repr(self) -> str:
        """Shape and format for ``print(model)``."""
        return f"{self.num_embeddings}, {self.embedding_dim}, format={self.form.name}"


def replace_weight(model: Any, layout: ModelLayout, name: str, form: Format, parts: Parts) -> None:
    """Put a module holding ``parts`` where ``name`` is; a head tied to it shares the same tensors."""
    info = next(w for w in layout.weights if w.name == name)
    old = model.get_submodule(name)
    if info.role == "embedding":
        new: EncodedWeight = QuantizedEmbedding(form, parts, info.shape, old)
    else:
        new = QuantizedLinear(form, parts, info.shape, getattr(old, "bias", None))
    _set_module(model, name, new)
    for tied in layout.weights:
        if tied.tied_to == name:
            bias = getattr(model.get_submodule(tied.name), "bias", None)
            _set_module(model, tied.name, QuantizedLinear(form, new.parts(), tied.shape, bias))


def allocate(model: Any, layout: ModelLayout, formats: dict[str, Format], place: torch.device) -> None:
    """Replace every weight by uninitialized storage in its format, ready to be filled from a checkpoint."""
    for info in layout.stored:
        shapes = part_shapes(info.shape, formats[info.name])
        parts = {suffix: torch.empty(shape, dtype=dtype, device=place) for suffix, (shape, dtype) in shapes.items()}
        replace_weight(model, layout, info.name, formats[info.name], parts)


def _set_module(model: Any, name: str, module: torch.nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def quantized_modules(model: torch.nn.Module) -> dict[str, QuantizedLinear]:
    """All quantized linear layers by name."""
    return {name: m for name, m in model.named_modules() if isinstance(m, QuantizedLinear)}


def choose_kernels(
    model: torch.nn.Module, device: Device, known: dict[str, tuple[str, ...]] | None = None
) -> dict[str, Any]:
    """Give every quantized layer its kernels, timing each (format, shape) once; returns what was found, for the record.

    ``known`` maps 'format outputs x inputs' to kernels chosen earlier on the same machine: those are used as they are,
    so that a reloaded model computes bit for bit what it did before.
    """
    report: dict[str, Any] = {}
    for module in quantized_modules(model).values():
        key = f"{module.form.name} {module.out_features}x{module.in_features}"
        if key not in report:
            if known and _usable(known.get(key, ())):
                report[key] = {"kernels": list(known[key]), "origin": "chosen when it was saved"}
            else:
                choice = kernels.pick(module.parts(), module.form, module.in_features, device)
                report[key] = {
                    "kernels": list(choice.kernels),
                    "microseconds": {k: [round(1e6 * s, 1) for s in v] for k, v in choice.seconds.items()},
                    "left_out": choice.left_out,
                    "origin": "timed for 1, 16 and 256 rows",
                }
        module.kernel_names = tuple(report[key]["kernels"])
    return report


def _usable(names: tuple[str, ...]) -> bool:
    """Whether kernels chosen by some version of genaccel are known to this one."""
    return len(names) == len(kernels.ROW_CLASSES) and all(name in kernels.BY_NAME for name in names)
