"""What a training run is told: the fields are the command line's options, their docstrings its help. No torch here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError, unknown

STRATEGIES = {
    "single": "one process",
    "ddp": "DistributedDataParallel: every process holds the whole model, gradients are averaged in buckets",
    "fsdp": "fully_shard by decoder layer: weights, gradients and optimizer are sharded",
    "zero1": "DeepSpeed ZeRO-1: the optimizer is sharded",
    "zero2": "DeepSpeed ZeRO-2: the optimizer and gradients are sharded",
    "zero3": "DeepSpeed ZeRO-3: weights, gradients and optimizer are sharded",
}
Strategy = Literal["single", "ddp", "fsdp", "zero1", "zero2", "zero3"]
Precision = Literal["fp32", "bf16", "fp16"]
Attention = Literal["auto", "flash", "memory-efficient", "math"]
Schedule = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True)
class TrainConfig:
    """How to train.

    Parameters
    ----------
    strategy
        single, ddp, fsdp, zero1, zero2 or zero3.
    processes
        Processes, one for each device; started here unless torchrun, Slurm or MPI already did.
    steps
        Optimizer steps; by default one pass over the data.
    global_batch
        Samples of one optimizer step, over all processes.
    micro_batch
        Samples that one process computes at once; fewer than its part of the global batch means accumulation.
    precision
        fp32; bf16 or fp16 compute on fp32 weights (fp16 with loss scaling, where the device has it).
    attention
        Kernel to force: flash, memory-efficient or math; auto leaves the choice to torch.
    gaudi_mode
        On Gaudi: eager, or lazy, which collects operations into graphs (PT_HPU_LAZY_MODE).
    activation_checkpointing
        Recompute every layer's activations in the backward pass instead of keeping them.
    reshard
        With fsdp: free a layer's weights after its forward pass and gather them again for its backward pass.
    shard_processes
        With fsdp: shard within groups of this many processes (a node's, say) and replicate over the groups.
    bucket_mb
        With ddp: gradients are averaged in buckets of this many megabytes.
    learning_rate
        Highest learning rate of AdamW.
    schedule
        How the learning rate falls after the warm-up: cosine or linear to zero, or constant.
    warmup_samples
        Samples over which the learning rate rises from zero.
    weight_decay
        Decoupled weight decay of matrices.
    clip
        Largest norm of the gradient; 0 does not clip.
    checkpoints
        Folder for checkpoints; a run that finds one of its own there goes on from it.
    save_every
        Steps between checkpoints; 0 saves only when told to end.
    keep
        Checkpoints kept, the latest.
    timeout
        Seconds after which a process that does not get on ends the run.
    warmup_steps
        First steps that are left out of the measured speed.
    seed
        Seed of every random number.
    """

    _: KW_ONLY
    strategy: Strategy = "single"
    processes: int = 1
    steps: int | None = None
    global_batch: int = 8
    micro_batch: int | None = None
    precision: Precision = "fp32"
    attention: Attention = "auto"
    gaudi_mode: Literal["eager", "lazy"] = "eager"
    activation_checkpointing: bool = False
    reshard: bool = True
    shard_processes: int | None = None
    bucket_mb: int = 25
    learning_rate: float = 2e-4
    schedule: Schedule = "cosine"
    warmup_samples: int = 0
    weight_decay: float = 0.0
    clip: float = 1.0
    checkpoints: Path | None = None
    save_every: int = 0
    keep: int = 2
    timeout: float = 600.0
    warmup_steps: int = 2
    seed: int = 0

    @property
    def micro_batch_size(self) -> int:
        """Samples that one process computes at once."""
        return self.micro_batch or self.global_batch // self.processes

    def check(self) -> None:
        """Raise ``UserError`` for the first value that cannot work."""
        if self.strategy not in STRATEGIES:
            raise unknown("strategy", self.strategy, STRATEGIES)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UserError(f"--{name.replace('_', '-')} is {value:g}, but it must be at least {least}.", "")
        if self.strategy == "single" and self.processes > 1:
            raise UserError(f"Strategy single cannot use {self.processes} processes.", "Add --strategy ddp.")
        if self.strategy != "single" and self.processes == 1:
            raise UserError(
                f"Strategy {self.strategy} needs at least two processes.", "Add --processes 2, or use single."
            )
        if self.global_batch % (self.processes * self.micro_batch_size or 1) or self.global_batch < self.processes:
            raise UserError(
                f"A global batch of {self.global_batch} samples cannot be split over {self.processes} processes in micro "
                f"batches of {max(self.micro_batch_size, 1)}.",
                "Choose --global-batch as a multiple of processes times --micro-batch.",
            )
        if self.shard_processes is not None:
            if self.strategy != "fsdp":
                raise UserError("--shard-processes is only used with --strategy fsdp.", "")
            if self.processes % self.shard_processes:
                raise UserError(
                    f"{self.processes} processes cannot be split into groups of {self.shard_processes}.",
                    "Choose --shard-processes as a divisor of --processes.",
                )


_LEAST: dict[str, float] = {
    "processes": 1,
    "steps": 1,
    "global_batch": 1,
    "micro_batch": 1,
    "shard_processes": 1,
    "bucket_mb": 1,
    "learning_rate": 0,
    "warmup_samples": 0,
    "weight_decay": 0,
    "clip": 0,
    "save_every": 0,
    "keep": 1,
    "timeout": 1,
    "warmup_steps": 0,
}
