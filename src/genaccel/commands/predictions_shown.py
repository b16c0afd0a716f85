"""How predictions are printed: a table of a sweep, or one configuration in detail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genaccel import console

if TYPE_CHECKING:
    from genaccel.predict.prediction import Prediction

MAIN_RATE = {"finetune": "tokens_per_second", "inference": "new_tokens_per_second", "superres": "images_per_second"}


def show_sweep(found: Sequence[Prediction]) -> None:
    """One line for each configuration, the settings that differ first."""
    first = found[0]
    varied = [key for key in first.settings if len({str(p.settings[key]) for p in found}) > 1] or ["on"]
    rate = MAIN_RATE[first.workload]
    columns = [*varied, rate.replace("_per_second", "/s"), "80 % interval", "memory", "MFU", "limited by", "note"]
    rows = [_line(p, varied, rate) for p in found]
    right = tuple(range(len(varied), len(varied) + 4))
    fixed = ", ".join(
        f"{key} {value}" for key, value in first.settings.items() if key not in varied and value is not None
    )
    console.table(f"{first.workload}, predicted: {fixed}", columns, rows, right)
    for sentence in dict.fromkeys(w for p in found for w in p.warnings):
        console.warn(sentence)


def _line(p: Prediction, varied: Sequence[str], rate: str) -> list[str]:
    settings = [str(p.settings[key]) for key in varied]
    if not p.fits:
        return [*settings, "-", "-", _memory(p), "-", "-", p.problem or ""]
    value = p.rates[rate]
    low, high = value * p.seconds / p.high, value * p.seconds / p.low
    return [*settings, _short(value), f"{_short(low)} to {_short(high)}", _memory(p), _share(p.mfu), p.bound, ""]


def _memory(p: Prediction) -> str:
    if p.memory_bytes is None:
        return "unknown"
    share = "" if p.memory_share is None else f" ({p.memory_share:.0%})"
    return console.format_bytes(p.memory_bytes) + share


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.0%}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show_one(p: Prediction) -> None:
    """One configuration: figures with their interval, and where the time goes."""
    from genaccel.predict.prediction import largest_parts

    what = ", ".join(f"{key} {value}" for key, value in p.settings.items() if value is not None)
    rows: list[list[str]] = [
        ["time of a step" if p.workload == "finetune" else "time", f"{p.seconds:.4g} s ({p.low:.3g} to {p.high:.3g})"]
    ]
    rows += [[name.replace("_", " "), _short(value)] for name, value in p.rates.items()]
    rows += [["memory of one card", _memory(p)], ["model FLOP/s utilization", _share(p.mfu)], ["limited by", p.bound]]
    if p.job_seconds is not None:
        rows.append(["the whole job", f"{p.job_seconds / 3600:.3g} h"])
    rows.append(["cost", "unknown: no price in the catalogue" if p.dollars is None else f"{p.dollars:,.2f} dollars"])
    energy = "unknown" if p.joules_at_most is None else f"{p.joules_at_most / 3.6e6:.4g} kWh at most (rated power)"
    rows.append(["energy", energy])
    console.table(f"Predicted: {p.workload}, {what}", ["figure", "value (80 % interval)"], rows)
    parts = [[name, f"{s:.4g} s", f"{s / p.seconds:.0%}"] for name, s in largest_parts(p.parts)]
    console.table("Where the time goes, predicted", ["part", "time", "share"], parts, (1, 2))
    console.say(f"Constants of {p.stack}; interval: {p.basis}.")
    for sentence in p.warnings:
        console.warn(sentence)


def documents(found: Sequence[Prediction]) -> list[dict[str, Any]]:
    """For ``--json``."""
    return [p.as_document() for p in found]
