"""A workload for tests of training: seeded random documents, read by whatever process asks for them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from genaccel.finetune.loss import loss_sum

LENGTHS = (7, 12, 5, 9, 16, 3, 11, 8)  # unequal, so that processes and micro-batches have unequal numbers of targets


@dataclass(frozen=True)
class TokenBatch:
    input_ids: torch.Tensor
    position_ids: torch.Tensor
    targets: torch.Tensor
    document_lengths: tuple[int, ...] | None
    num_tokens: int

    def to(self, device: torch.device) -> TokenBatch:
        return self


def document(index: int, vocabulary: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(index)
    return torch.randint(vocabulary, (LENGTHS[index % len(LENGTHS)],), generator=generator)


@dataclass(frozen=True)
class RandomTokens:
    vocabulary: int
    global_batch: int
    micro_batch: int
    rank: int = 0
    world_size: int = 1

    def samples(self, step: int) -> range:
        return range(step * self.global_batch, (step + 1) * self.global_batch)

    def micro_batches(self, step: int):
        mine = self.global_batch // self.world_size
        samples = self.samples(step)[self.rank * mine : (self.rank + 1) * mine]
        for start in range(0, mine, self.micro_batch):
            yield self.batch([document(i, self.vocabulary) for i in samples[start : start + self.micro_batch]])

    def batch(self, documents) -> TokenBatch:
        ids, lengths = torch.cat(documents), tuple(map(len, documents))
        positions = torch.cat([torch.arange(n) for n in lengths])
        targets = torch.cat([torch.cat([d[1:], torch.tensor([-100])]) for d in documents])
        return TokenBatch(ids[None], positions[None], targets[None], lengths, len(ids))

    def num_targets(self, step: int) -> float:
        return sum(len(document(i, self.vocabulary)) - 1 for i in self.samples(step))

    def loss_sum(self, model, batch):
        return loss_sum(model, batch)

    def describe_step(self, step: int) -> str:
        return f"samples {list(self.samples(step))}"
