"""Super-resolution as the training loop sees it: seeded patches of maps, and the loss of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from genaccel.errors import UserError
from genaccel.superres.maps import Brightness, DustMap, block_mean

if TYPE_CHECKING:
    from genaccel.train.group import Group


@dataclass(frozen=True)
class PatchBatch:
    """Low and high resolution of some patches, [maps, 1, height, width], and the seed of their noise."""

    low: torch.Tensor
    high: torch.Tensor
    seeds: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Images, which is what throughput counts here."""
        return len(self.high)

    def to(self, device: torch.device) -> PatchBatch:
        """The same on ``device``."""
        return PatchBatch(self.low.to(device), self.high.to(device), self.seeds)


@dataclass(frozen=True)
class PatchNoise:
    """Noise that belongs to a patch: the same whatever process computes it, and beside whatever other patches."""

    numbers: tuple[int, ...]
    seed: int

    def _drawn(self, kind: int, draw: Callable[[torch.Generator], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        found = []
        for number in self.numbers:
            state = np.random.SeedSequence([self.seed, number, kind]).generate_state(1, np.uint64)
            found.append(draw(torch.Generator().manual_seed(int(state[0]) >> 1)))
        return torch.stack(found).to(x)

    def normal(self, x: torch.Tensor) -> torch.Tensor:
        """One normal number for every patch."""
        return self._drawn(1, lambda g: torch.randn((), generator=g), x)

    def uniform(self, x: torch.Tensor) -> torch.Tensor:
        """One number in 0..1 for every patch."""
        return self._drawn(2, lambda g: torch.rand((), generator=g), x)

    def white(self, x: torch.Tensor) -> torch.Tensor:
        """Unit white noise like ``x``."""
        return self._drawn(3, lambda g: torch.randn(x.shape[1:], generator=g), x)


@dataclass
class Patches:
    """Patches by number: each has its map, place, flip, turn and noise from its number and the seed alone.

    So every process can make any patch, and a step holds the same ones for every number of processes.
    """

    maps: Sequence[DustMap]
    patch: int
    factor: int
    brightness: Brightness
    seed: int
    _usable: list[DustMap] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Only maps that a patch fits into can be used."""
        self._usable = [m for m in self.maps if min(m.shape) >= self.patch and m.valid.mean() > 0.5]
        if not self._usable:
            largest = max((min(m.shape) for m in self.maps), default=0)
            raise UserError(
                f"No training map holds a patch of {self.patch} pixels; the largest is {largest} wide.",
                "Choose a smaller --patch, or give larger maps.",
            )

    def make(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) standardized brightness of patch ``number``; all its pixels are valid."""
        generator = np.random.default_rng([self.seed, number])
        for _ in range(100):
            source = self._usable[int(generator.integers(len(self._usable)))]
            top, left = (int(generator.integers(n - self.patch + 1)) for n in source.shape)
            part = slice(top, top + self.patch), slice(left, left + self.patch)
            if source.valid[part].all():
                break
        else:
            raise UserError(
                f"No patch of {self.patch} pixels without masked ones was found.", "Choose a smaller --patch."
            )
        flux = np.rot90(source.values[part], int(generator.integers(4)))
        flux = flux[:, ::-1] if generator.integers(2) else flux
        low, _ = block_mean(flux, self.factor)
        return self.brightness.forward(low), self.brightness.forward(flux)


@dataclass(frozen=True)
class SuperResolution:
    """Patches as micro-batches of this process."""

    patches: Patches
    group: Group
    global_batch: int
    micro_batch: int

    def numbers(self, step: int) -> range:
        """The patches of a step, over all processes."""
        return range(step * self.global_batch, (step + 1) * self.global_batch)

    def micro_batches(self, step: int) -> Iterator[PatchBatch]:
        """This process's contiguous part of the step's patches."""
        mine = self.global_batch // self.group.world_size
        numbers = self.numbers(step)[self.group.rank * mine : (self.group.rank + 1) * mine]
        for start in range(0, mine, self.micro_batch):
            yield self.batch(numbers[start : start + self.micro_batch])

    def batch(self, numbers: Sequence[int]) -> PatchBatch:
        """Patches by number."""
        pairs = [self.patches.make(n) for n in numbers]
        low, high = (torch.from_numpy(np.stack([p[i] for p in pairs])).float()[:, None] for i in (0, 1))
        return PatchBatch(low, high, tuple(numbers))

    def num_targets(self, step: int) -> float:  # noqa: ARG002
        """The loss is a mean over patches."""
        return float(self.global_batch)

    def loss_sum(self, model: nn.Module, batch: PatchBatch) -> torch.Tensor:
        """The losses of a micro-batch, summed. Noise belongs to a patch, not to a process."""
        total: torch.Tensor = model(batch.low, batch.high, PatchNoise(batch.seeds, self.patches.seed)).sum()
        return total

    def describe_step(self, step: int) -> str:
        """The patches of a step."""
        numbers = self.numbers(step)
        return f"patches {numbers.start} to {numbers.stop - 1}"
