"""Commands that train: finetune."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from genaccel import console
from genaccel.commands import Flat, app
from genaccel.errors import UserError
from genaccel.finetune.config import FinetuneConfig
from genaccel.origins import settings
from genaccel.summary import print_training
from genaccel.train.config import TrainConfig

if TYPE_CHECKING:
    from genaccel.finetune.prepare import Prepared
    from genaccel.launch.ranks import Ranks
    from genaccel.train.loop import Outcome

RUN_FOLDER = "GENACCEL_RUN_FOLDER"


@app.command
def finetune(
    config: Annotated[FinetuneConfig, Flat],
    train: Annotated[TrainConfig, Flat] = TrainConfig(),  # noqa: B008
    *,
    grid: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
) -> None:
    """Fine-tune a model under any strategy, measure every step, and leave a record.

    Processes are started here, or were by torchrun, Slurm (srun) or MPI: then each joins the others.

    Parameters
    ----------
    grid
        Options and the values to try, such as strategy=ddp,fsdp attention=flash,math: every combination is a run.
    """
    from genaccel.finetune.prepare import prepare
    from genaccel.launch.ranks import detect, export

    ranks = detect()
    if grid:
        return _run_grid(config, grid)
    if ranks is not None:
        export(ranks)
        train = _joined(train, ranks)
    elif train.processes > 1:
        prepared = prepare(config, train)  # what is wrong is said once, before processes are started
        return _launch(prepared)
    console.muted = ranks is not None and ranks.rank > 0
    return _work(prepare(config, train), ranks)


def _joined(train: TrainConfig, ranks: Ranks) -> TrainConfig:
    """The run's own number of processes is that of whoever started them."""
    if train.processes not in (1, ranks.world_size):
        raise UserError(
            f"--processes is {train.processes}, but {ranks.started_by} started {ranks.world_size}.",
            "Leave --processes out.",
        )
    return replace(train, processes=ranks.world_size)


def _launch(prepared: Prepared) -> None:
    """Start this command once for every process and wait for them."""
    import tempfile
    from pathlib import Path

    from genaccel.launch.local import launch

    train = prepared.train_config
    threads = None if prepared.device.NAME != "cpu" else max(1, (os.cpu_count() or 1) // train.processes)
    with tempfile.TemporaryDirectory(prefix="genaccel-") as folder:
        os.environ[RUN_FOLDER] = folder
        launch(sys.argv[1:], train.processes, Path(folder), threads)


def _work(prepared: Prepared, ranks: Ranks | None) -> None:
    """Train in this process; the first one says what came of it."""
    from pathlib import Path

    from genaccel.finetune.run import run
    from genaccel.launch.heartbeat import Heartbeat

    folder = os.environ.get(RUN_FOLDER)
    heartbeat = None
    if folder and ranks is not None:
        heartbeat = Heartbeat(Path(folder), ranks.rank, prepared.train_config.timeout)
    try:
        finished = run(prepared, ranks, heartbeat, settings(prepared.config, prepared.train_config))
    except BaseException as error:
        if heartbeat is not None:
            heartbeat.record_error(error)
        raise
    if heartbeat is not None:
        heartbeat.stop()
    if finished.outcome.ended_early:
        _say_how_to_go_on(finished.outcome)
    elif finished.record is not None and finished.path is not None:
        record, path = finished.record, finished.path

        def text() -> None:
            print_training([record])
            console.say(f"Record: {path}")

        for warning in record.warnings:
            console.warn(warning)
        console.emit([asdict(record)], text)


def _say_how_to_go_on(outcome: Outcome) -> None:
    said = f"Told to end after step {outcome.step}; checkpoint: {outcome.checkpoint}. Give the same command to go on."
    console.emit({"ended_after_step": outcome.step, "checkpoint": str(outcome.checkpoint)}, lambda: console.say(said))


def _run_grid(config: FinetuneConfig, grid: tuple[str, ...]) -> None:
    from genaccel.finetune.study import run_grid

    records = run_grid(sys.argv[1:], grid, config.runs)
    console.emit([asdict(r) for r in records], lambda: print_training(records))
