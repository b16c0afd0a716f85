"""A training command in one process or several: started here, or by torchrun, Slurm or MPI."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

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
    from genaccel.launch.ranks import detect, export

    ranks = detect()
    if ranks is not None:
        export(ranks)
        train = _joined(train, ranks)
        console.muted = ranks.rank > 0
    prepared = prepare(train)
    if ranks is not None:
        _work_as_one_of_several(train, ranks, lambda heartbeat: work(prepared, ranks, heartbeat))
    elif train.processes > 1:
        _launch(train)
    else:
        work(prepared, None, None)


def _work_as_one_of_several(train: TrainConfig, ranks: Ranks, work: Callable[[Heartbeat], None]) -> NoReturn:
    """Do ``work`` under a watchdog, and end this process."""
    from genaccel.launch.heartbeat import Heartbeat

    given = os.environ.get(RUN_FOLDER)
    # Where somebody else started the processes, signs of life are for this one's own watchdog.
    folder = Path(given or tempfile.mkdtemp(prefix="genaccel-"))
    heartbeat = Heartbeat(folder, ranks.rank, train.timeout)
    try:
        work(heartbeat)
    except BaseException as error:
        heartbeat.record_error(error)
        code = _said(error, there_is_a_launcher=given is not None)
        _end(code, None if given else folder)  # here, while the error holds what must not be freed
    heartbeat.stop()
    _end(0, None if given else folder)


def _said(error: BaseException, there_is_a_launcher: bool) -> int:
    """The exit code for ``error``. A launcher of ours reads what it is from the folder and says it."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, KeyboardInterrupt):
        return 130
    if not isinstance(error, UserError):
        traceback.print_exception(error)
        return 1
    if not there_is_a_launcher:
        console.fail(error)
    return error.exit_code


def _end(code: int, folder: Path | None) -> NoReturn:
    """End this process of several at once.

    Not by returning: gloo's destructors join threads that may be waiting for the interpreter, which then never ends.
    """
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
    # A job may use fewer cores than the machine has; what the user says of threads holds.
    threads = int(os.environ.get("OMP_NUM_THREADS") or max(1, allowed // train.processes))
    with tempfile.TemporaryDirectory(prefix="genaccel-") as folder:
        os.environ[RUN_FOLDER] = folder
        launch(sys.argv[1:], train.processes, Path(folder), threads)


def say_how_to_go_on(outcome: Outcome) -> None:
    """A run that was told to end has left a checkpoint."""
    said = f"Told to end after step {outcome.step}; checkpoint: {outcome.checkpoint}. Give the same command to go on."
    console.emit({"ended_after_step": outcome.step, "checkpoint": str(outcome.checkpoint)}, lambda: console.say(said))
