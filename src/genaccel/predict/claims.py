"""The study's claims beside predictions and public rows: what is inside, what is not, and how sure that is."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from math import exp, log
from statistics import geometric_mean, median
from typing import Any

from genaccel.predict.answers import parts_of
from genaccel.predict.chips import find_chip
from genaccel.predict.decoder import decoder_of
from genaccel.predict.finetuning import Finetuning, predict_finetuning
from genaccel.predict.generating import Generating, request_of
from genaccel.predict.prediction import Prediction, interval_of
from genaccel.predict.rows import Row, read_rows
from genaccel.predict.superresolving import Superresolving, predict_superresolving
from genaccel.predict.validate import published_files
from genaccel.records import structure_strictly
from genaccel.shapes import find_shape

TUNED = ("tinyllama-1.1b", "llama-3.1-8b", "gemma2-27b")
"""Models that are tuned, with adapters so that they fit; ratios are averaged over those that fit on both sides."""


@dataclass(frozen=True)
class Claim:
    """A range that the study reports. ``kind`` says what is predicted for it, ``slow`` and ``fast`` where."""

    text: str
    low: float
    high: float
    kind: str
    slow: str
    fast: str


@dataclass(frozen=True)
class Verdict:
    """A claim beside its prediction (with an 80 % interval) and public pairs; None where there is none."""

    name: str
    claim: Claim
    predicted: float | None
    low: float | None
    high: float | None
    published: tuple[float, ...]
    how: str

    @property
    def says(self) -> str:
        """Whether the prediction, or only its interval, is inside the claim's range."""
        if self.predicted is None or self.low is None or self.high is None:
            return "cannot be predicted"
        if self.claim.low <= self.predicted <= self.claim.high:
            return "inside"
        overlap = self.low <= self.claim.high and self.claim.low <= self.high
        return "outside, but its interval reaches the claim" if overlap else "outside"


def claims() -> dict[str, Claim]:
    """The claims of the catalogue by id."""
    file = resources.files("genaccel").joinpath("catalogue/claims.toml")
    data = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: structure_strictly(Claim, given, f"The claim {name}") for name, given in data.items()}


def judge(claim: Claim, name: str, rows: Sequence[Row]) -> Verdict:
    """The claim predicted, and public pairs that are alike in everything but what it compares."""
    ask = {
        "finetune": _finetune,
        "attention": _attention,
        "sharding": _sharding,
        "sharding-everywhere": _sharding,
        "superres": _superres,
        "scaling": _scaling,
        "scoring": _scoring,
    }[claim.kind]
    value, factor, how = ask(claim)
    if claim.kind == "scoring":
        pairs: tuple[float, ...] = ()
    elif claim.kind.startswith("sharding"):
        pairs = like_pairs(rows, "strategy", ("zero3", "fsdp_full_shard", "zero2"), ("ddp",))
    elif claim.kind in ("finetune", "superres") and claim.slow != claim.fast:
        tables = "training" if claim.kind == "finetune" else "imaging"
        pairs = device_pairs([row for row in rows if row.workload == tables], claim.slow, claim.fast)
    else:
        pairs = ()
    if value is None:
        return Verdict(name, claim, None, None, None, pairs, how)
    return Verdict(name, claim, value, value / factor, value * factor, pairs, how)


def judge_all() -> list[Verdict]:
    """Every claim."""
    rows = [row for path in published_files() for row in read_rows(path)]
    sound = [row for row in rows if row.question and not row.suspect and not row.memory]
    return [judge(claim, name, sound) for name, claim in claims().items()]


def _ratio(slow: Prediction, fast: Prediction) -> tuple[float, float]:
    """(how many times as fast, factor of its interval): errors of the two are taken as independent."""
    widths = [(p.high / p.seconds) for p in (slow, fast)]
    return slow.seconds / fast.seconds, exp(sum(log(w) ** 2 for w in widths) ** 0.5)


def _tuned(model: str, on: str, **more: Any) -> Prediction:
    rank = None if model == "tinyllama-1.1b" else 16
    usual = Finetuning(model, on, cards=8, global_batch=64, length=1024, lora_rank=rank, checkpointing=True)
    return predict_finetuning(replace(usual, **more))


def _average(found: Sequence[tuple[float, float]], how: str) -> tuple[float | None, float, str]:
    if not found:
        return None, 1.0, how
    return geometric_mean(r for r, _ in found), median(f for _, f in found), how


def _finetune(claim: Claim) -> tuple[float | None, float, str]:
    pairs = [(_tuned(m, claim.slow), _tuned(m, claim.fast)) for m in TUNED]
    fitting = [(a, b) for a, b in pairs if a.fits and b.fits]
    names = ", ".join(a.settings["model"] for a, _ in fitting)
    return _average(
        [_ratio(a, b) for a, b in fitting], f"8 cards, DDP, 1,024 tokens, as many sequences at once as fit: {names}"
    )


def _attention(claim: Claim) -> tuple[float | None, float, str]:
    found = []
    for on in (claim.slow, claim.fast):
        for length in (1024, 2048, 4096):
            plain, flash = (
                _tuned("llama-3.1-8b", on, strategy="fsdp", attention=kernel, length=length)
                for kernel in ("math", "flash")
            )
            # The same run twice: what is not known about it is on both sides.
            found.append((plain.seconds / flash.seconds, 1.1))
    return _average(found, "Llama-3.1-8B with adapters on both, 1,024 to 4,096 tokens; factor 1.1 assumed")


def _sharding(claim: Claim) -> tuple[float | None, float, str]:
    models = TUNED if claim.kind == "sharding-everywhere" else ("gemma2-27b",)
    found, names = [], []
    for on in (claim.slow, claim.fast):
        for model in models:
            if _tuned(model, on, micro_batch=1).fits:
                singly, most = _lost_by_sharding(model, on, 1), _lost_by_sharding(model, on, None)
                found.append((singly, 1.15))
                names.append(f"{model} on {on} {singly:.2f}x ({most:.2f}x)")
    how = "DDP against the faster of ZeRO-3 and FSDP where it fits, a sequence at a time (and as many at once as fit)"
    return _average(found, f"{how}: {', '.join(names)}")


def _lost_by_sharding(model: str, on: str, micro_batch: int | None) -> float:
    plain, *sharded = (_tuned(model, on, strategy=s, micro_batch=micro_batch) for s in ("ddp", "zero3", "fsdp"))
    return min(p.seconds for p in sharded) / plain.seconds


def _drawn(on: str, cards: int = 1, batch: int = 64) -> Prediction:
    precision = "fp16" if on.startswith("v100") else "bf16"
    return predict_superresolving(Superresolving("base", on, cards, batch, 128, train=True, precision=precision))


def _superres(claim: Claim) -> tuple[float | None, float, str]:
    return *_ratio(_drawn(claim.slow), _drawn(claim.fast)), "genaccel's base network, 64 maps of 128 pixels a card"


def _scaling(claim: Claim) -> tuple[float | None, float, str]:
    one, four = _drawn(claim.slow), _drawn(claim.fast, 4)
    return one.seconds / four.seconds, 1.05, "genaccel's base network on 1 and 4 cards; factor 1.05 assumed"


def _scoring(claim: Claim) -> tuple[float | None, float, str]:
    from dataclasses import replace

    model = decoder_of(find_shape("tinyllama-1.1b"))
    request = request_of(Generating(model.name, claim.slow, 1, 8, 2047, 1), model, find_chip(claim.slow))
    asked = replace(request, asks="prefill")
    seconds = sum(parts_of(asked).values())
    return 8 * 2047 / seconds, interval_of(asked).factor, "scoring 8 windows of 2,047 tokens at once in bf16"


def device_pairs(rows: Sequence[Row], slow: str, fast: str) -> tuple[float, ...]:
    """How many times as fast ``fast`` is in public rows that are alike in everything but the device."""
    return _pairs(rows, lambda row: _chip(row), ("device",), (slow,), (fast,))


def like_pairs(rows: Sequence[Row], cell: str, slow: Sequence[str], fast: Sequence[str]) -> tuple[float, ...]:
    """The same for rows that differ in another cell."""
    mine = [row for row in rows if row.workload == "training"]
    return _pairs(mine, lambda row: row.cells.get(cell, ""), (cell,), tuple(slow), tuple(fast))


def _chip(row: Row) -> str:
    assert row.question is not None
    return row.question.asked.chip.name


def _pairs(
    rows: Sequence[Row], of: object, apart: tuple[str, ...], slow: tuple[str, ...], fast: tuple[str, ...]
) -> tuple[float, ...]:
    ignored = {*apart, "value", "notes", "params_b"}
    by_key: dict[tuple[str, ...], dict[str, list[float]]] = {}
    for row in rows:
        key = tuple(value for name, value in row.cells.items() if name not in ignored)
        by_key.setdefault(key, {}).setdefault(of(row), []).append(_speed(row))  # type: ignore[operator]
    found = []
    for values in by_key.values():
        ahead = [v for name in fast for v in values.get(name, [])]
        for name in slow:
            if name in values and ahead:
                found.append(median(ahead) / median(values[name]))
    return tuple(sorted(found))


def _speed(row: Row) -> float:
    assert row.question is not None
    return row.value if row.question.rate else 1 / row.value


def markdown(found: Sequence[Verdict]) -> str:
    """The claims' table for the documentation."""
    lines = [
        "| id | claim of the study | predicted (80 % interval) | is it inside | public pairs: median (range, number) |",
        "|---|---|---|---|---|",
    ]
    for v in found:
        predicted = "-" if v.predicted is None else f"{_short(v.predicted)} ({_short(v.low)} to {_short(v.high)})"
        pairs = "none"
        if v.published:
            spread = f"{v.published[0]:.2f} to {v.published[-1]:.2f}, {len(v.published)}"
            pairs = f"{median(v.published):.2f} ({spread})"
        lines.append(f"| {v.name} | {v.claim.text} | {predicted} | {v.says} | {pairs} |")
    notes = [f"- {v.name}: {v.how}." for v in found]
    return "\n".join([*lines, "", "What was predicted:", "", *notes]) + "\n"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
