"""A training command in one process or several: started here, or by torchrun, Slurm or MPI."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from genaccel import console
from genaccel.errors import UserError

if TYPE_CHECKING:
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks
    from genaccel.train.config import TrainConfig
    from genaccel.train.loop import Outcome

RUN_FOLDER = "GENACCEL_RUN_FOLDER"
P = TypeVar("P")


def train_in_processes(
    train: TrainConfig,
    prepare: Callable[[TrainConfig], P],
    work: Callable[[P, Ranks | None, Heartbeat | None], None],
) -> None:
    """Do ``work`` on what ``prepare`` gives, in every process of the run.

    When processes are to be started here, ``prepare`` also runs before that: what is wrong is then said once.
    """
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import detect, export

    ranks = detect()
    if ranks is not None:
        export(ranks)
        train = _joined(train, ranks)
        console.muted = ranks.rank > 0
    prepared = prepare(train)
    if ranks is None and train.processes > 1:
        return _launch(train)
    if ranks is None:
        return work(prepared, None, None)
    with contextlib.ExitStack() as stack:
        # Where somebody else started the processes, signs of life are for this one's own watchdog.
        folder = os.environ.get(RUN_FOLDER) or stack.enter_context(tempfile.TemporaryDirectory(prefix="genaccel-"))
        heartbeat = Heartbeat(Path(folder), ranks.rank, train.timeout)
        try:
            work(prepared, ranks, heartbeat)
        except BaseException as error:
            heartbeat.record_error(error)
            raise
        heartbeat.stop()
    return None


def _joined(train: TrainConfig, ranks: Ranks) -> TrainConfig:
    """The run's own number of processes is that of whoever started them."""
    if train.processes not in (1, ranks.world_size):
        raise UserError(
            f"--processes is {train.processes}, but {ranks.started_by} started {ranks.world_size}.",
            "Leave --processes out.",
        )
    return replace(train, processes=ranks.world_size)


def _launch(train: TrainConfig) -> None:
    """Start this command once for every process and wait for them."""
    from genaccel.launch.local import launch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, allowed // train.processes)  # a job may use fewer cores than the machine has
    with tempfile.TemporaryDirectory(prefix="genaccel-") as folder:
        os.environ[RUN_FOLDER] = folder
        launch(sys.argv[1:], train.processes, Path(folder), threads)


def say_how_to_go_on(outcome: Outcome) -> None:
    """A run that was told to end has left a checkpoint."""
    said = f"Told to end after step {outcome.step}; checkpoint: {outcome.checkpoint}. Give the same command to go on."
    console.emit({"ended_after_step": outcome.step, "checkpoint": str(outcome.checkpoint)}, lambda: console.say(said))
