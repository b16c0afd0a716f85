"""Corrections from one's own records: what genaccel's loop really reached on a machine, so that its predictions fit that machine.

Published constants stay as they are. For every device that the records ran on, the constants of the stack "genaccel" get a
correction of their own, which few records move little: each constant keeps its spread around what was known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from genaccel.errors import UserError
from genaccel.predict.answers import features_of
from genaccel.predict.chips import chip_for
from genaccel.predict.constants import Corrections, Key, TimeModel, corrections_of
from genaccel.predict.finetuning import Finetuning, step_of
from genaccel.predict.fitting import Problem, fit, stack_features
from genaccel.predict.training import TRAINING, TrainingStep
from genaccel.records import Record
from genaccel.shapes import find_shape

STACK = "genaccel"


@dataclass(frozen=True)
class Own:
    """A record of fine-tuning as a question whose answer was measured."""

    record: Record
    step: TrainingStep
    seconds: float


def own_steps(records: Sequence[Record], on: str | None = None) -> tuple[list[Own], list[str]]:
    """(records as questions, sentences about those that are none). ``on`` is the accelerator, if not the record's own."""
    found, problems = [], []
    for record in records:
        if record.job != "finetune":
            continue
        try:
            found.append(_own(record, on))
        except UserError as error:
            problems.append(f"{record.label}: {error.message}")
    return found, list(dict.fromkeys(problems))


def _own(record: Record, on: str | None) -> Own:
    figure = record.figure("step_seconds")
    if figure is None or not figure.value:
        raise UserError("its time of a step is unknown.", "")
    cards = record.environment.num_devices
    shape, chip = find_shape(record.model), chip_for(on or record.target, None, cards)

    def value(name: str, default: object = None) -> object:
        return record.config[name].value if name in record.config else default

    batch = int(str(value("global_batch", cards)))
    micro = int(str(value("micro_batch") or max(1, batch // cards)))
    ask = Finetuning(
        shape.name,
        chip.name,
        cards,
        str(value("strategy", "ddp")),
        batch,
        length=int(str(value("length", 512))),
        precision=str(value("precision", "fp32")),
        lora_rank=int(str(value("lora_rank", 8))) if value("lora") else None,
        checkpointing=bool(value("activation_checkpointing", False)),
        attention=str(value("attention", "auto")),
        stack=STACK,
    )
    return Own(record, step_of(ask, shape, chip, micro), figure.value)


def own_corrections(found: Sequence[Own]) -> Corrections:
    """Corrections of the devices that the records ran on, beside the stored ones."""
    stored = corrections_of(TRAINING)
    result = Corrections(TRAINING)
    for key in {own.step.key for own in found}:
        mine = [own for own in found if own.step.key == key]
        known = stored.logarithms(key)
        # The constants as they were are the priors of this fit.
        constants = tuple(
            replace(c, prior=float(np.exp(p)), measured=float(np.exp(p)))
            for c, p in zip(TRAINING.constants, known, strict=True)
        )
        model = TimeModel(TRAINING.name, constants, TRAINING.features, TRAINING.parts)
        features = stack_features(model.features, [features_of(own.step) for own in mine])
        groups = np.array([own.record.id for own in mine])
        problem = Problem(model, features, np.array([own.seconds for own in mine]), [key] * len(mine), groups)
        moved = problem.corrections(fit(problem).vector).logarithms(key) - known
        result.values[("together", f"{key.device} {key.stack}")] = moved
    return result


def errors_of(found: Sequence[Own], own: Corrections | None = None) -> list[tuple[Own, Key, float]]:
    """(record, key, predicted over measured time) with the stored constants and, where given, one's own."""
    stored = corrections_of(TRAINING)
    lines = []
    for one in found:
        key = one.step.key
        logarithms = stored.logarithms(key)
        if own is not None:
            logarithms = logarithms + own.values.get(("together", f"{key.device} {key.stack}"), 0.0)
        features = stack_features(TRAINING.features, [features_of(one.step)])
        seconds = float(TRAINING.seconds(logarithms[None, :], features)[0])
        lines.append((one, key, seconds / one.seconds))
    return lines
