"""Commands that super-resolve: superres train, sample, evaluate."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from genaccel import console
from genaccel.commands import Flat, app
from genaccel.commands.starting import say_how_to_go_on, train_in_processes
from genaccel.origins import settings
from genaccel.summary import show_figures
from genaccel.superres.config import DustTrainConfig, JudgeMapsConfig, SampleConfig, SuperresConfig

if TYPE_CHECKING:
    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import Ranks
    from genaccel.superres.run import Prepared

superres = App(name="superres", help="Super-resolve maps of galactic dust by diffusion.", help_format="plaintext")
app.command(superres)


@superres.command
def train(
    config: Annotated[SuperresConfig, Flat] = SuperresConfig(),  # noqa: B008
    train: Annotated[DustTrainConfig, Flat] = DustTrainConfig(),  # noqa: B008
) -> None:
    """Train a super-resolver on maps, for a number of steps or minutes, and leave a record."""
    from genaccel.superres.run import prepare

    return train_in_processes(train, partial(prepare, config), _work)


def _work(prepared: Prepared, ranks: Ranks | None, heartbeat: Heartbeat | None) -> None:
    from genaccel.superres.run import run

    finished = run(prepared, ranks, heartbeat, settings(prepared.config, prepared.train_config))
    if finished.outcome.ended_early and prepared.config.minutes is None:
        say_how_to_go_on(finished.outcome)
    if finished.record is not None and finished.path is not None:
        show_figures(finished.record, finished.path)


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
    show_figures(record, path)
