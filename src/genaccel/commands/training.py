"""Commands that train: finetune."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from genaccel import console
from genaccel.commands import Flat
from genaccel.commands.starting import say_how_to_go_on, train_in_processes
from genaccel.finetune.config import FinetuneConfig
from genaccel.origins import settings
from genaccel.summary import print_training
from genaccel.train.config import TrainConfig

if TYPE_CHECKING:
    from genaccel.finetune.prepare import Prepared
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks


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
    if grid:
        return _run_grid(config, grid)
    from genaccel.finetune.prepare import prepare

    return train_in_processes(train, partial(prepare, config), _work)


def _work(prepared: Prepared, ranks: Ranks | None, heartbeat: Heartbeat | None) -> None:
    """Train in this process; the first one says what came of it."""
    from genaccel.finetune.run import run

    finished = run(prepared, ranks, heartbeat, settings(prepared.config, prepared.train_config))
    if finished.outcome.ended_early:
        say_how_to_go_on(finished.outcome)
    elif finished.record is not None and finished.path is not None:
        record, path = finished.record, finished.path

        def text() -> None:
            print_training([record])
            console.say(f"Record: {path}")

        for warning in record.warnings:
            console.warn(warning)
        console.emit([asdict(record)], text)


def _run_grid(config: FinetuneConfig, grid: tuple[str, ...]) -> None:
    from genaccel.train.study import run_grid

    records = run_grid(sys.argv[1:], grid, config.runs)
    console.emit([asdict(r) for r in records], lambda: print_training(records))
