"""Where weights come from: a folder of safetensors, read one tensor at a time, or a model in memory.

Scoring, planning and saving work on this interface, so that a model need not fit in memory to be quantized.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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
    """The safetensors files of a folder. Every ``get`` maps the file anew and lets go of it with the tensor.

    Holding one map open would keep every page that was read in the process's resident memory.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors import SafetensorError, safe_open

        self.folder = folder
        self._file_of: dict[str, Path] = {}
        for file in sorted(folder.glob("*.safetensors")):
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
        self._check_index()

    def _check_index(self) -> None:
        index = self.folder / "model.safetensors.index.json"
        if index.exists():
            missing = sorted(set(json.loads(index.read_text())["weight_map"]) - set(self._file_of))
            if missing:
                raise UserError(
                    f"{self.folder} lacks {len(missing)} tensors, among them {missing[0]}.", "A shard is missing."
                )

    def names(self) -> Iterable[str]:
        """All tensor names."""
        return self._file_of.keys()

    def get(self, name: str) -> torch.Tensor:
        """One tensor, backed by the file."""
        from safetensors import safe_open

        with safe_open(self._file_of[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor


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
