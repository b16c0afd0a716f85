"""Writing a model folder in Hugging Face's layout: shards with their index, configuration, tokenizer."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from genaccel.store import write_text

if TYPE_CHECKING:
    import torch

    from genaccel.models import ModelSource

SHARD_BYTES = 1 << 27
MAX_SHARDS = 200


def write_shards(folder: Path, tensors: Iterator[tuple[str, torch.Tensor]], total_bytes: int) -> int:
    """Store ``tensors`` in files of about ``SHARD_BYTES`` with the usual index; returns their bytes."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    limit = max(SHARD_BYTES, total_bytes // MAX_SHARDS)
    shards: list[list[str]] = []
    pending: dict[str, torch.Tensor] = {}
    written = pending_bytes = 0

    def flush() -> None:
        nonlocal pending, pending_bytes
        try:
            save_file(pending, folder / f"shard-{len(shards)}", metadata={"format": "pt"})
        except SafetensorError as error:  # safetensors wraps the system's error in its own
            full = "os error 28" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        shards.append(list(pending))
        pending, pending_bytes = {}, 0

    for name, tensor in tensors:
        pending[name] = tensor
        pending_bytes += tensor.numel() * tensor.element_size()
        written += tensor.numel() * tensor.element_size()
        if pending_bytes >= limit:
            flush()
    if pending:
        flush()
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    if len(names) == 1:
        names = ["model.safetensors"]
    for i, name in enumerate(names):
        (folder / f"shard-{i}").rename(folder / name)
    if len(names) > 1:
        weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        index = {"metadata": {"total_size": written}, "weight_map": weight_map}
        write_text(folder / "model.safetensors.index.json", json.dumps(index, indent=1) + "\n")
    return written


def copy_configuration(source: ModelSource, folder: Path) -> None:
    """The model's configuration, for weights in fp32, and its tokenizer."""
    config = json.loads((source.folder / "config.json").read_text())
    for outdated in ("quantization_config", "torch_dtype"):  # the latter is dtype's former name
        config.pop(outdated, None)
    config["dtype"] = "float32"
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
    for file in source.folder.iterdir():
        if file.name.startswith(
            ("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "generation_config", "chat_template")
        ):
            (folder / file.name).write_bytes(file.read_bytes())
