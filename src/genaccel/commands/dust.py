"""Commands that super-resolve: superres train, sample, evaluate."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from genaccel import console
from genaccel.commands import Flat
from genaccel.commands.starting import say_how_to_go_on, train_in_processes
from genaccel.errors import UserError
from genaccel.origins import settings
from genaccel.summary import print_dust, show_figures
from genaccel.superres.config import DustTrainConfig, JudgeMapsConfig, SampleConfig, SuperresConfig

if TYPE_CHECKING:
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks
    from genaccel.superres.run import Prepared

superres = App(name="superres", help="Super-resolve maps of galactic dust by diffusion.", help_format="plaintext")


@superres.command
def train(
    config: Annotated[SuperresConfig, Flat] = SuperresConfig(),  # noqa: B008
    train: Annotated[DustTrainConfig, Flat] = DustTrainConfig(),  # noqa: B008
    *,
    scaling: str | None = None,
) -> None:
    """Train a super-resolver on maps, for a number of steps or minutes, and leave a record.

    Parameters
    ----------
    scaling
        Numbers of processes, such as 1,2: train with each, the same batch for every process, and show the efficiency.
    """
    if scaling is not None:
        return _scale(config, train, scaling)
    from genaccel.superres.run import prepare

    return train_in_processes(train, partial(prepare, config), _work)


def _work(prepared: Prepared, ranks: Ranks | None, heartbeat: Heartbeat | None) -> None:
    from genaccel.superres.run import run

    finished = run(prepared, ranks, heartbeat, settings(prepared.config, prepared.train_config))
    if finished.outcome.ended_early and prepared.config.minutes is None:
        say_how_to_go_on(finished.outcome)
    if finished.record is not None and finished.path is not None:
        show_figures(finished.record, finished.path)


def _scale(config: SuperresConfig, train: DustTrainConfig, numbers: str) -> None:
    """One run for every number of processes, with as many threads for each."""
    from genaccel.train.study import run_cells, scaling_cells, scaling_of, without

    try:
        processes = [int(n) for n in numbers.split(",") if n]
    except ValueError:
        raise UserError(f"--scaling is '{numbers}', but it takes numbers.", "For example --scaling 1,2") from None
    cells = scaling_cells(processes, train.strategy, train.global_batch)
    threads = max(1, (os.cpu_count() or 1) // max(processes))
    arguments = without(sys.argv[1:], ["scaling", *cells[0]])
    records = run_cells(arguments, cells, config.runs, os.environ | {"OMP_NUM_THREADS": str(threads)})
    rows = scaling_of(records, "train_images_per_second")

    def text() -> None:
        shown = [[str(r.processes), f"{r.per_second:.1f}", f"{r.efficiency:.0%}", r.record] for r in rows]
        titles = ["processes", "images/s", "efficiency", "record"]
        console.table(f"Weak scaling, {threads} threads a process (measured)", titles, shown, (0, 1, 2))

    console.emit([asdict(r) for r in rows], text)


@superres.command
def sample(config: Annotated[SampleConfig, Flat]) -> None:
    """Super-resolve maps: FITS files with the ensemble's mean, its standard deviation and its members."""
    from genaccel.superres.files import resolve_files

    written = resolve_files(config)

    def text() -> None:
        for row in written:
            console.say(f"{row['map']}: {row['from']} -> {row['to']} pixels, {row['members']} members: {row['file']}")

    console.emit(written, text)


@superres.command
def evaluate(config: Annotated[JudgeMapsConfig, Flat] = JudgeMapsConfig()) -> None:  # noqa: B008
    """Judge a super-resolver on maps that it was not trained on, beside bicubic and regression; leave a record and pictures."""
    from genaccel.superres.files import judge_files

    record, path = judge_files(config, settings(config))

    def text() -> None:
        print_dust(record)
        console.say(f"Pictures: {record.artefacts['pictures']}")
        console.say(f"Record: {path}")

    console.emit([asdict(record)], text)
