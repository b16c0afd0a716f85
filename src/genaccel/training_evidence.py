"""What the report shows of fine-tuning records: a table, curves of the loss, and where a step's time went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genaccel.compare import known
from genaccel.console import format_bytes
from genaccel.figures import GRID, SERIES_COLOURS, SERIES_MARKERS, canvas, gid, label, legend, style
from genaccel.inline_svg import INK, inline_svg
from genaccel.records import Record

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_RUNS = 8  # in one picture: more cannot be told apart
PHASES = (
    ("forward", "#0072b2", ""),
    ("backward", "#e69f00", "////"),
    ("waiting", "#999999", ".."),
    ("optimizer", "#009e73", "xx"),
)


@dataclass(frozen=True)
class TrainingRow:
    """One run: what it was, and (text, tooltip, kind, value) of every number; text is '' when it is unknown."""

    record: Record
    strategy: str
    attention: str
    cells: tuple[tuple[str, str, str, float | None], ...]


COLUMNS = (
    ("tokens/s", "train_tokens_per_second", "{:,.0f}"),
    ("per device", "train_tokens_per_second_per_device", "{:,.0f}"),
    ("step, s", "step_seconds", "{:.3f}"),
    ("p95, s", "step_seconds_p95", "{:.3f}"),
    ("sent a step", "communication_bytes", ""),
    ("sending, s", "communication_seconds", "{:.3f}"),
    ("exposed, s", "exposed_communication_seconds", "{:.3f}"),
    ("peak memory", "peak_memory_bytes", ""),
    ("estimated", "estimated_memory_bytes", ""),
    ("MFU", "mfu", "{:.1%}"),
    ("last loss", "last_loss", "{:.4f}"),
    ("held out before", "held_out_loss_before", "{:.4f}"),
    ("held out after", "held_out_loss_after", "{:.4f}"),
    ("energy, J", "energy_joules", "{:,.0f}"),
)


def training_rows(records: Sequence[Record]) -> list[TrainingRow]:
    """A row for every fine-tuning record, latest last."""
    return [
        TrainingRow(
            r, _setting(r, "strategy"), _setting(r, "attention"), tuple(_cell(r, *column[1:]) for column in COLUMNS)
        )
        for r in records
    ]


def _setting(record: Record, name: str) -> str:
    found = record.config.get(name)
    return str(found.value) if found is not None else ""


def _cell(record: Record, name: str, form: str) -> tuple[str, str, str, float | None]:
    number = known(record, name)
    if number is None:
        return "", "unknown", "", None
    text = form.format(number.value) if form else format_bytes(number.value)
    return text, f"{number.kind}; {number.protocol}", number.kind, number.value


def numbers_of(record: Record, name: str) -> list[float]:
    """A curve of ``record``, or nothing when its details hold none: they came from a file."""
    curves = record.details.get("curves")
    values = curves.get(name) if isinstance(curves, dict) else None
    if not isinstance(values, list) or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
        return []
    return [float(v) for v in values]


def answers_of(record: Record) -> tuple[str, str, str] | None:
    """(prompt, answer before, answer after) of a run that was asked something."""
    found = record.details.get("answers")
    if not isinstance(found, dict) or not found.get("prompt"):
        return None
    return str(found["prompt"]), str(found.get("before") or ""), str(found.get("after") or "")


def draw_losses(records: Sequence[Record]) -> str | None:
    """Loss over steps of the latest runs that have one, as SVG; equal curves lie on top of each other."""
    runs = [(r, numbers_of(r, "step"), numbers_of(r, "loss")) for r in records]
    runs = [(r, steps, losses) for r, steps, losses in runs if steps and len(steps) == len(losses)][-MAX_RUNS:]
    if not runs:
        return None
    tips: list[str] = []
    with style():
        figure, axes = canvas(2.8)
        handles = []
        for index, (record, steps, losses) in enumerate(runs):
            look: dict[str, Any] = {
                "color": SERIES_COLOURS[index % len(SERIES_COLOURS)],
                "marker": SERIES_MARKERS[index % len(SERIES_MARKERS)],
                "markevery": (index % 5, max(1, len(steps) // 8)),
                "markersize": 4,
                "linewidth": 1.1,
            }
            handles += axes.plot(steps, losses, label=label(_name(record)), gid=gid(tips), **look)
            tips.append(f"{_name(record)}: {losses[0]:.4f} to {losses[-1]:.4f} in {len(steps)} steps")
        axes.set_xlabel("step")
        axes.set_ylabel("training loss, nats per target")
        axes.grid(**GRID)
        axes.legend(handles=handles, loc="upper right", fontsize=7)
        return inline_svg(figure, "Training loss by step", tips)


def draw_phases(records: Sequence[Record]) -> str | None:
    """Where the time of a median step went in the latest runs, as stacked bars in SVG."""
    runs: list[tuple[Record, list[float]]] = []
    for record in records:
        numbers = [known(record, f"{phase}_seconds") for phase, _, _ in PHASES]
        if any(n is not None for n in numbers):
            runs.append((record, [0.0 if n is None else n.value for n in numbers]))
    runs = runs[-MAX_RUNS:]
    if not runs:
        return None
    tips: list[str] = []
    with style():
        longest = max(len(label(_name(r))) for r, _ in runs)
        figure, axes = canvas(0.9 + 0.28 * len(runs), left=0.3 + 0.074 * longest)
        for row, (record, seconds) in enumerate(runs):
            _bar(axes, row, _name(record), seconds, tips)
        axes.set_yticks(range(len(runs)), [label(_name(r)) for r, _ in runs])
        axes.invert_yaxis()
        axes.set_xlabel("seconds of a step, median")
        axes.grid(axis="x", **GRID)
        from matplotlib.patches import Patch

        legend(axes, [Patch(facecolor=c, hatch=h, edgecolor=INK, label=name) for name, c, h in PHASES])
        return inline_svg(figure, "Seconds of a training step by phase", tips)


def _bar(axes: Axes, row: int, name: str, seconds: Sequence[float], tips: list[str]) -> None:
    left = 0.0
    for (phase, colour, hatch), width in zip(PHASES, seconds, strict=True):
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "#1a1a1a", "linewidth": 0.3}
        axes.barh(row, width, left=left, height=0.7, gid=None, **look)[0].set_gid(gid(tips))
        tips.append(f"{name}: {phase} {width:.3f} s")
        left += width


def _name(record: Record) -> str:
    attention = _setting(record, "attention")
    return f"{record.label}{'' if attention in ('', 'auto') else f', {attention}'}"
