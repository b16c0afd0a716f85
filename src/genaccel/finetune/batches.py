"""Which example is computed when, and by whom: the same samples in the same step for every number of processes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from genaccel.errors import UserError
from genaccel.finetune.data import TokenizedData

NO_TARGET = -100
Sample = tuple[int, ...]
"""Examples that share a row: one when rows are padded."""


@dataclass(frozen=True)
class Batch:
    """A micro-batch. ``input_ids``, ``position_ids`` and ``targets`` are [rows, length], int64.

    ``targets[r, t]`` is the token to predict at position t, or -100. A packed batch is one row of documents whose
    lengths are given; a padded one has a row for each example, with zeros on the right.
    """

    input_ids: torch.Tensor
    position_ids: torch.Tensor
    targets: torch.Tensor
    document_lengths: tuple[int, ...] | None
    num_tokens: int
    num_targets: int

    def to(self, device: torch.device) -> Batch:
        """The same on ``device``."""
        return replace(
            self,
            input_ids=self.input_ids.to(device, non_blocking=True),
            position_ids=self.position_ids.to(device, non_blocking=True),
            targets=self.targets.to(device, non_blocking=True),
        )


def _document(data: TokenizedData, example: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(tokens, targets) of one example."""
    span = slice(int(data.starts[example]), int(data.starts[example + 1]))
    ids = torch.from_numpy(data.tokens[span].astype(np.int64))
    counts = torch.from_numpy(data.is_target[span])
    following = torch.full_like(ids, NO_TARGET)
    following[:-1] = torch.where(counts[1:], ids[1:], NO_TARGET)
    return ids, following


def packed_batch(data: TokenizedData, examples: Sequence[int]) -> Batch:
    """One row with the examples one after the other, each with positions of its own."""
    documents = [_document(data, i) for i in examples]
    ids, targets = (torch.cat([d[part] for d in documents]) for part in (0, 1))
    lengths = tuple(len(d[0]) for d in documents)
    positions = torch.cat([torch.arange(n) for n in lengths])
    return Batch(ids[None], positions[None], targets[None], lengths, len(ids), int((targets >= 0).sum()))


def padded_batch(data: TokenizedData, examples: Sequence[int]) -> Batch:
    """A row for each example, as long as the longest."""
    documents = [_document(data, i) for i in examples]
    lengths = [len(d[0]) for d in documents]
    shape = (len(documents), max(lengths))
    ids, targets = torch.zeros(shape, dtype=torch.int64), torch.full(shape, NO_TARGET, dtype=torch.int64)
    for row, (tokens, following) in enumerate(documents):
        ids[row, : len(tokens)], targets[row, : len(tokens)] = tokens, following
    positions = torch.arange(shape[1]).expand(shape).contiguous()
    return Batch(ids, positions, targets, None, sum(lengths), int((targets >= 0).sum()))


def padded_batches(data: TokenizedData, size: int) -> list[Batch]:
    """All examples in batches of ``size``, those of like length together."""
    order = np.argsort(data.lengths, kind="stable").tolist()
    return [padded_batch(data, order[i : i + size]) for i in range(0, len(order), size)]


def pack(lengths: Sequence[int], row_length: int) -> list[Sample]:
    """Examples into rows of at most ``row_length`` tokens, best fit in the given order: each goes where least room stays."""
    rows: list[list[int]] = []
    room: list[tuple[int, int]] = []  # (room left, row), ascending
    for example, length in enumerate(lengths):
        if length > row_length:
            raise UserError(f"An example of {length} tokens does not fit a row of {row_length}.", "")
        place = bisect_left(room, (length, -1))
        if place == len(room):
            rows.append([example])
            left, row = row_length - length, len(rows) - 1
        else:
            left, row = room.pop(place)
            rows[row].append(example)
            left -= length
        if left:
            insort(room, (left, row))
    return [tuple(row) for row in rows]


@dataclass
class DataPlan:
    """The order of samples: epoch after epoch, each shuffled by the seed; a step takes the next ``global_batch``.

    A sample is an example, or with ``packing`` a row of up to ``length`` tokens, packed anew each epoch.
    """

    data: TokenizedData
    length: int
    packing: bool
    global_batch: int
    seed: int
    _stream: list[Sample] = field(default_factory=list, repr=False)
    _num_epochs: int = 0
    _targets: np.ndarray | None = None
    num_samples: int = 0

    def __post_init__(self) -> None:
        """The first epoch."""
        self._add_epoch()
        self.num_samples = len(self._stream)
        if self.global_batch > self.num_samples:
            what = f"rows of {self.length} tokens" if self.packing else "examples"
            raise UserError(
                f"The global batch of {self.global_batch} is more than the {self.num_samples} {what} there are.",
                "Choose a smaller --global-batch, or a shorter --length.",
            )

    def _add_epoch(self) -> None:
        generator = np.random.default_rng([self.seed, self._num_epochs])
        order = generator.permutation(self.data.num_examples)
        if self.packing:
            rows = pack(self.data.lengths[order].tolist(), self.length)
            shuffled = generator.permutation(len(rows))
            self._stream += [tuple(int(order[i]) for i in rows[r]) for r in shuffled]
        else:
            self._stream += [(int(i),) for i in order]
        self._num_epochs += 1

    def samples_of_step(self, step: int) -> list[Sample]:
        """The global batch of a step."""
        end = (step + 1) * self.global_batch
        while len(self._stream) < end:
            self._add_epoch()
        return self._stream[end - self.global_batch : end]

    def examples_of_step(self, step: int) -> list[int]:
        """The examples in a step's global batch."""
        return [i for sample in self.samples_of_step(step) for i in sample]

    def num_targets_of_step(self, step: int) -> int:
        """Targets in a step's global batch: every process knows them all without asking."""
        if self._targets is None:
            self._targets = self.data.targets_by_example()
        return int(sum(self._targets[i] for i in self.examples_of_step(step)))

    def document_lengths_of_step(self, step: int) -> list[int]:
        """Tokens of every document in a step's global batch."""
        lengths = self.data.lengths
        return [int(lengths[i]) for i in self.examples_of_step(step)]

    def micro_batches(self, step: int, rank: int, world_size: int, size: int) -> Iterator[Batch]:
        """The micro-batches of ``size`` samples that process ``rank`` computes: its contiguous part of the global batch."""
        mine = self.global_batch // world_size
        assert mine * world_size == self.global_batch, "checked before a run begins"
        assert mine % size == 0, "checked before a run begins"
        samples = self.samples_of_step(step)[rank * mine : (rank + 1) * mine]
        for start in range(0, mine, size):
            examples = [i for sample in samples[start : start + size] for i in sample]
            yield packed_batch(self.data, examples) if self.packing else padded_batch(self.data, examples)
