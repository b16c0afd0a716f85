"""Commands that ask about machines that are not here: predict finetune, inference, superres."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App

from genaccel import console
from genaccel.commands import Flat
from genaccel.errors import UserError
from genaccel.predict.asked import AskedFinetuning, AskedInference, AskedSuperres

predict = App(
    name="predict",
    help="Time, memory and cost on accelerators that are not here. Values separated by commas make a table.",
    help_format="plaintext",
)


@predict.command
def finetune(asked: Annotated[AskedFinetuning, Flat]) -> None:
    """Fine-tuning: time of a step, tokens/s, memory, MFU, cost and what limits it."""
    _answer(asked)


@predict.command
def inference(asked: Annotated[AskedInference, Flat]) -> None:
    """Text generation: time to the first token, tokens/s, memory with keys and values, and what limits it."""
    _answer(asked)


@predict.command
def superres(asked: Annotated[AskedSuperres, Flat] = AskedSuperres()) -> None:  # noqa: B008
    """Super-resolution by diffusion: images/s in training or drawing, memory, and what limits it."""
    _answer(asked)


def _answer(asked: AskedFinetuning | AskedInference | AskedSuperres) -> None:
    from genaccel.commands.predictions_shown import documents, show_one, show_sweep
    from genaccel.predict.sweep import sweep

    values = asked.values()
    for option, options in values.items():
        if not options:
            raise UserError(f"--{option.replace('_', '-')} names nothing.", "Give one value or several with commas.")
    found, refused = sweep(asked.ask, values)
    for sentence in refused:
        console.warn(sentence)
    if len(found) > 1 or refused:
        console.emit(documents(found), lambda: show_sweep(found))
        return
    only = found[0]
    if only.problem is not None:
        raise UserError(f"{only.problem}.", only.hint)
    console.emit(documents(found), lambda: show_one(only))
