"""A prediction as people and programs read it: time with its interval, rates, memory, what limits it, cost and energy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from genaccel.predict.answers import Asked, errors_like, model_of, on_several, parts_of
from genaccel.predict.chips import MEASURED, Chip
from genaccel.predict.constants import Key, TimeModel, corrections_of
from genaccel.predict.imaging import Drawing
from genaccel.predict.intervals import Interval, interval_for
from genaccel.predict.serving import Request

BOUNDS = {
    "compute": (
        "matrix products",
        "output head",
        "convolutions",
        "attention",
        "prefill: matrix products",
        "prefill: attention",
    ),
    "memory": ("streaming", "optimizer", "decode: attention", "decode: streaming", "prefill: streaming"),
    "communication": ("communication", "prefill: communication", "decode: communication"),
    "host": ("host", "waiting for nodes", "pipeline bubble", "prefill: host", "decode: host"),
}
"""What limits each part. A decoding step's matrix products are limited by whichever of arithmetic and memory takes longer."""


@dataclass(frozen=True)
class Prediction:
    """One configuration, predicted. ``seconds`` is of a step or request, ``low`` and ``high`` its 80 % interval.

    ``rates`` are by name with their unit in it; ``parts`` are seconds that add up to ``seconds``. ``problem`` says why it
    cannot run, in one sentence. Unknown figures are None, never 0.
    """

    workload: str
    settings: dict[str, Any]
    seconds: float
    low: float
    high: float
    rates: dict[str, float]
    parts: dict[str, float]
    bound: str
    memory_bytes: float | None
    memory_share: float | None
    mfu: float | None
    stack: str
    basis: str
    problem: str | None = None
    dollars: float | None = None
    joules_at_most: float | None = None
    job_seconds: float | None = None
    warnings: tuple[str, ...] = ()
    memory_parts: dict[str, float] = field(default_factory=dict)
    hint: str = ""

    @property
    def fits(self) -> bool:
        """Whether nothing rules it out."""
        return self.problem is None

    def as_document(self) -> dict[str, Any]:
        """For ``--json``; every figure in it is predicted."""
        return {"kind": "predicted"} | asdict(self)


@dataclass(frozen=True)
class Known:
    """What is known of a configuration beside its time. ``flops`` are those of the model, on all cards."""

    settings: dict[str, Any]
    chip: Chip
    cards: int
    precision: str
    flops: float
    rates: Mapping[str, float]
    memory_bytes: float | None
    problem: str | None = None
    warnings: tuple[str, ...] = ()
    memory_parts: dict[str, float] = field(default_factory=dict)
    hint: str = ""
    job_steps: float | None = None
    dollars_per_card_hour: float | None = None


def predict(workload: str, asked: Asked, known: Known) -> Prediction:
    """The prediction; ``known.rates`` are what a step or request does, divided here by its seconds."""
    parts = parts_of(asked)
    seconds = sum(parts.values())
    interval = interval_of(asked)
    low, high = interval.around(seconds)
    job = None if known.job_steps is None else known.job_steps * seconds
    spent = job if job is not None else seconds
    price, watts = known.dollars_per_card_hour, known.chip.watts
    return Prediction(
        workload=workload,
        settings=known.settings,
        seconds=seconds,
        low=low,
        high=high,
        rates={name: amount / seconds for name, amount in known.rates.items()},
        parts=parts,
        bound=bound_of(asked, parts),
        memory_bytes=known.memory_bytes,
        memory_share=known.memory_bytes / known.chip.memory_bytes
        if known.memory_bytes and known.chip.memory_bytes
        else None,
        mfu=_mfu(known, seconds),
        stack=asked.key.stack,
        basis=interval.basis,
        problem=known.problem,
        dollars=None if price is None else price * known.cards * spent / 3600,
        joules_at_most=None if watts is None else watts * known.cards * spent,
        job_seconds=job,
        warnings=known.warnings,
        memory_parts=known.memory_parts,
        hint=known.hint,
    )


def interval_of(asked: Asked) -> Interval:
    """The 80 % interval of such a question, from errors on groups left out of the fit."""
    return _interval(errors_like(asked), model_of(asked), asked.key, on_several(asked))


@cache
def _interval(like: str, model: TimeModel, key: Key, several: bool) -> Interval:
    return interval_for(like, key, several, corrections_of(model))


def _mfu(known: Known, seconds: float) -> float | None:
    """Model FLOP/s as a share of the dense peak of the dtype computed with; None where no peak was published: a rate that was measured is none."""
    dtype = known.precision
    if dtype not in known.chip.peak_flops or dtype in known.chip.reference or known.chip.family == MEASURED:
        return None
    return known.flops / seconds / (known.cards * known.chip.peak_flops[dtype])


def bound_of(asked: Asked, parts: Mapping[str, float]) -> str:
    """compute, memory, communication or host: what most of the time goes to."""
    shares = {bound: sum(parts.get(name, 0.0) for name in names) for bound, names in BOUNDS.items()}
    if isinstance(asked, Request):
        from genaccel.predict.serving import SERVING, request_features

        found = request_features(asked)
        constants = SERVING.named(corrections_of(SERVING).logarithms(asked.key))
        reads = found["decode_read"] / constants["bandwidth"] > found["decode_flops"] / constants["matrix"]
        shares["memory" if reads else "compute"] += parts["decode: matrix products"]
    if isinstance(asked, Drawing) and not asked.trains:
        shares.pop("communication")
    return max(shares, key=lambda bound: shares[bound])


def largest_parts(parts: Mapping[str, float], num: int = 8) -> Sequence[tuple[str, float]]:
    """The parts that take longest."""
    return sorted(((n, s) for n, s in parts.items() if s > 0), key=lambda part: -part[1])[:num]
