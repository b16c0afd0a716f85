"""Where weights come from: a folder of safetensors, read one tensor at a time, or a model in memory.

Scoring, planning and saving work on this interface, so that a model need not fit in memory to be quantized.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

import torch

from genaccel.errors import UserError


class Weights(Protocol):
    """Named tensors, fetched one by one."""

    def names(self) -> Iterable[str]:
        """All tensor names."""

    def get(self, name: str) -> torch.Tensor:
        """One tensor; the caller may not write to it."""


class FolderWeights:
    """The weights in a folder's safetensors files. Every ``get`` maps the file anew and lets go of it with the tensor.

    Holding one map open would keep every page that was read in the process's resident memory.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = folder
        self._file_of: dict[str, Path] = {}
        index = _read_index(folder)
        for file in _weight_files(folder, index):
            try:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - a safetensors handle is not a mapping
                        if name in self._file_of:
                            raise UserError(
                                f"Tensor {name} is in two files of {folder}.", "Keep one set of weights in it."
                            )
                        self._file_of[name] = file
            except (SafetensorError, OSError) as error:
                raise UserError(
                    f"{file} is not a whole safetensors file: {error}.", "Fetch or write it again."
                ) from None
        missing = sorted(set(index) - set(self._file_of))
        if missing:
            raise UserError(f"{folder} lacks {len(missing)} tensors, among them {missing[0]}.", "A shard is missing.")

    def keep_only(self, names: Collection[str]) -> None:
        """Forget tensors that are not among ``names``."""
        self._file_of = {name: file for name, file in self._file_of.items() if name in names}

    def names(self) -> Iterable[str]:
        """All tensor names."""
        return self._file_of.keys()

    def get(self, name: str) -> torch.Tensor:
        """One tensor, backed by the file."""
        from safetensors import safe_open

        with safe_open(self._file_of[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor


def _read_index(folder: Path) -> dict[str, str]:
    """Tensor -> file of a model in shards; empty for one in a single file, which comes first as in transformers."""
    path = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not path.exists():
        return {}
    try:
        index = json.loads(path.read_text())["weight_map"]
    except (OSError, ValueError, KeyError, TypeError):
        index = None
    if not isinstance(index, dict) or not all(isinstance(file, str) for file in index.values()):
        raise UserError(f"{path} is no index of weights.", "Fetch the model again.")
    return index


def _weight_files(folder: Path, index: dict[str, str]) -> list[Path]:
    """The model's own files: others beside them, such as adapters or the vendor's original layout, are left alone."""
    if index:
        return [path for name in sorted(set(index.values())) if (path := folder / name).exists()]
    single = folder / "model.safetensors"
    return [single] if single.exists() else sorted(folder.glob("*.safetensors"))


class ModelWeights:
    """The tensors of a model in memory."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._tensors: dict[str, torch.Tensor] = dict(model.state_dict())

    def names(self) -> Iterable[str]:
        """All tensor names."""
        return self._tensors.keys()

    def get(self, name: str) -> torch.Tensor:
        """One tensor, sharing the model's memory."""
        return self._tensors[name]
