"""Where a run keeps its checkpoints, going on from them, and being told to end."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel import console
from genaccel.train.checkpoint import Checkpoints

if TYPE_CHECKING:
    import torch

    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.train.config import TrainConfig
    from genaccel.train.loop import Run

UNFINISHED = ".unfinished"


def identity_of(config: TrainConfig, num_steps: int | None, more: dict[str, Any]) -> dict[str, Any]:
    """What must be the same for a run to go on; strategy, processes and micro-batch need not be.

    ``num_steps`` matters to schedules that end at the last step.
    """
    names = ("global_batch", "learning_rate", "schedule", "warmup_samples", "weight_decay", "clip", "seed")
    steps = None if config.schedule == "constant" else num_steps
    return more | {name: getattr(config, name) for name in names} | {"steps": steps}


def go_on(
    loop: Run,
    runs: Path,
    job: str,
    identity: dict[str, Any],
    more_tensors: Callable[[], dict[str, torch.Tensor]] = dict,
) -> None:
    """Give ``loop`` its checkpoints, and its state of the last one of this very run, if there is one.

    Without a folder of their own they lie among unfinished runs, and go when the run is finished.
    """
    folder = loop.config.checkpoints
    if folder is None:
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        folder = runs / UNFINISHED / f"{job}-{digest[:16]}"
    loop.checkpoints = Checkpoints(folder, loop.config.keep, loop.group, identity, more_tensors)
    if found := loop.checkpoints.latest():
        path, progress = found
        loop.checkpoints.load(path, progress, loop.engine)
        loop.first_step, loop.losses = progress.step, list(progress.losses)
        console.note(f"Going on from {path}, written by {progress.processes} processes under {progress.strategy}")


def forget(loop: Run) -> None:
    """The run is finished: checkpoints that nobody asked for go."""
    if loop.config.checkpoints is None and loop.checkpoints is not None:
        shutil.rmtree(loop.checkpoints.folder, ignore_errors=True)


@contextmanager
def told_to_end(heartbeat: Heartbeat | None) -> Iterator[Callable[[], bool]]:
    """SIGTERM, as Slurm sends it before preemption, asks for a checkpoint and an end; it no longer ends the process."""
    told = False

    def note(*_: object) -> None:
        nonlocal told
        told = True

    # Slurm sends either, as --signal says.
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGUSR1)}
    try:
        yield lambda: told or (heartbeat is not None and heartbeat.told_to_end())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
