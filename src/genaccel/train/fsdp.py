"""FSDP through ``fully_shard``: every decoder layer, then the rest, is a unit that is gathered when it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from genaccel.train.config import TrainConfig
from genaccel.train.engine import DTYPES, Engine, materialize
from genaccel.train.group import Group


def wrap(
    module: nn.Module,
    layers: Sequence[nn.Module],
    config: TrainConfig,
    group: Group,
    fill: Callable[[str], torch.Tensor] | None = None,
) -> Engine:
    """Shard ``layers`` one by one and what remains as a last unit; over groups of ``shard_processes`` if that is set.

    A module without memory (on the meta device) gets its weights from ``fill``, one whole tensor at a time, of which
    each process keeps its shard: no process ever holds the model.
    """
    kind, shards = group.device.torch_device().type, config.shard_processes or group.world_size
    if shards < group.world_size:
        mesh = init_device_mesh(kind, (group.world_size // shards, shards), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh(kind, (group.world_size,), mesh_dim_names=("shard",))
    # Weights are kept and gradients summed in fp32; gathering in half precision halves what is sent.
    half = None if config.precision == "fp32" else DTYPES[config.precision]
    policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
    device = group.device.torch_device()
    names = {part: name for name, part in module.named_modules()}
    for layer in layers:
        if fill is not None:
            materialize(layer, names, fill, device)
        fully_shard(layer, mesh=mesh, reshard_after_forward=config.reshard, mp_policy=policy)
    if fill is not None:
        materialize(module, names, fill, device)
    wrapped = fully_shard(module, mesh=mesh, reshard_after_forward=config.reshard, mp_policy=policy)
    units = [m for m in module.modules() if isinstance(m, FSDPModule)]
    whole = [name for name, p in module.named_parameters() if not isinstance(p, DTensor)]
    assert not whole, f"{whole[0]} was not sharded"
    assert len(units) == len(layers) + 1, "every layer is a unit of its own"
    about = {
        "strategy": "fsdp",
        "wrapped": type(wrapped).__name__,
        "units": len(units),
        "mesh": list(mesh.shape),
        "reshard": config.reshard,
        "parameter_dtype": str(half or torch.float32),
    }
    # Holding gradients back keeps them whole: that is for those who also keep the weights. Others reduce every time.
    hold = None if config.reshard else (lambda: _hold(wrapped))
    return Engine(module, module, config, group.device, about, hold=hold, autocasts=False)


@contextmanager
def _hold(module: Any) -> Iterator[None]:
    """Keep gradients whole and at home within the block: no reduction, more memory."""
    module.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        module.set_requires_gradient_sync(True)
