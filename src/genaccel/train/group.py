"""The processes of one run and the little that they tell each other besides gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from genaccel.devices import Device


@dataclass(frozen=True)
class Group:
    """This process's place among those of the run. A single process needs no torch.distributed."""

    device: Device
    rank: int = 0
    world_size: int = 1

    def sum(self, values: Sequence[float]) -> list[float]:
        """The element-wise sum over processes, the same bits on each."""
        if self.world_size == 1:
            return list(values)
        dtype = torch.float32 if self.device.NAME == "hpu" else torch.float64
        tensor = torch.tensor(values, dtype=dtype, device=self.device.torch_device())
        dist.all_reduce(tensor)
        return [float(v) for v in tensor.tolist()]

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[list[float]]]:
        """The rows of every process; each must give as many, of the same length."""
        own = torch.tensor([list(row) for row in rows], dtype=torch.float64)
        if self.world_size == 1:
            return [own.tolist()]
        # HCCL has no float64; milliseconds and bytes of a step survive as two float32 parts.
        high = own.float()
        parts = torch.stack([high, (own - high.double()).float()]).to(self.device.torch_device())
        found = [torch.empty_like(parts) for _ in range(self.world_size)]
        dist.all_gather(found, parts)
        return [(part[0].double() + part[1].double()).tolist() for part in (f.cpu() for f in found)]

    def barrier(self) -> None:
        """Wait for every process."""
        if self.world_size > 1:
            dist.barrier()


def join(device: Device, rank: int, world_size: int, timeout_seconds: float) -> Group:
    """Join the process group that the environment describes (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT)."""
    if world_size > 1:
        dist.init_process_group(
            device.collective_backend(),
            init_method="env://",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeout_seconds),
        )
    return Group(device, rank, world_size)


_kept: list[object] = []


def leave(group: Group, *holders: object) -> None:
    """Leave the process group; call it when all went well, for after a failure it might wait for the others.

    With gloo it is left to the end of the process, and so is whatever holds it (``holders``): its destructor joins
    threads that may be waiting for the interpreter, which was seen to hang.
    """
    if group.world_size == 1:
        return
    if group.device.collective_backend() == "gloo":
        _kept.extend(holders)
    else:
        dist.destroy_process_group()
