"""What the report shows of fine-tuning records: a table, curves of the loss, and where a step's time went."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genaccel.compare.numbers import known
from genaccel.records import Record
from genaccel.report.drawing import INK, Drawing, style
from genaccel.report.evidence import place_key
from genaccel.report.figures import GRID, SERIES_COLOURS, SERIES_MARKERS, WIDTH, canvas, gid, label, legend
from genaccel.report.parts import Anchors, Cell, Column, Facts, Picture, Row, Section, Table, number_cell, one_group

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_RUNS = 8  # in one picture: more cannot be told apart
MAX_ANSWERS = 10
PHASES = (
    ("forward", "#0072b2", ""),
    ("backward", "#e69f00", "////"),
    ("waiting", "#999999", ".."),
    ("optimizer", "#009e73", "xx"),
)
COLUMNS = (
    ("tokens/s", "train_tokens_per_second", "{:,.0f}"),
    ("per device", "train_tokens_per_second_per_device", "{:,.0f}"),
    ("step, s", "step_seconds", "{:.3f}"),
    ("p95, s", "step_seconds_p95", "{:.3f}"),
    ("sent a step", "communication_bytes", None),
    ("sending, s", "communication_seconds", "{:.3f}"),
    ("exposed, s", "exposed_communication_seconds", "{:.3f}"),
    ("peak memory", "peak_memory_bytes", None),
    ("estimated", "estimated_memory_bytes", None),
    ("MFU", "mfu", "{:.1%}"),
    ("last loss", "last_loss", "{:.4f}"),
    ("held out before", "held_out_loss_before", "{:.4f}"),
    ("held out after", "held_out_loss_after", "{:.4f}"),
    ("energy, J", "energy_joules", "{:,.0f}"),
)


def finetune_section(records: Sequence[Record], anchors: Anchors) -> Section | None:
    """Fine-tuning: every run, curves of the latest, and what they answered. ``records`` are oldest first."""
    trained = [r for r in records if r.job == "finetune"]
    if not trained:
        return None
    table = training_table("training-runs", "Fine-tuning runs", trained, COLUMNS, anchors)
    parts: list[Any] = [table, *curves(trained)]
    if asked := answers(trained):
        parts.append(Facts(tuple(asked)))
    notes = ("Rates count tokens without padding over all devices; seconds and bytes are medians of a step.",)
    return Section("training", "Fine-tuning", notes, tuple(parts))


def training_table(
    id: str, caption: str, records: Sequence[Record], shown: Sequence[tuple[str, str, str | None]], anchors: Anchors
) -> Table:
    """A row for every run: how it was trained and where, then its numbers; the caption says which no run knows."""
    told = [name for name in ("attention", "precision") if {setting(r, name) for r in records} - {"", "auto"}]
    missing = [title for title, name, _ in shown if not any(known(r, name) for r in records)]
    shown = [column for column in shown if column[0] not in missing]
    caption += f" (unknown of all: {', '.join(missing)})" if missing else ""
    rows = []
    for r in records:
        cells = [Cell(r.label), Cell(r.mode), *(Cell(setting(r, name)) for name in told)]
        cells += [anchors.place_cell(r, place_key(r)), *(number_cell(r, name, form) for _, name, form in shown)]
        cells.append(anchors.record_cell(r))
        tags = {"model": r.model, "strategy": setting(r, "strategy"), "attention": setting(r, "attention")}
        rows.append(Row(tuple(cells), (r.created, r.id), tags, r.model))
    head = (Column("run"), Column("trained"), *(Column(name) for name in told), Column("ran on", look="place"))
    columns = (*head, *(Column(title, True, name) for title, name, _ in shown), Column("record"))
    return Table(id, caption, columns, one_group(rows), ("model", "strategy", "attention"))


def curves(records: Sequence[Record]) -> list[Picture]:
    """Losses and phases of the latest runs, where they are known."""
    found = (("Training loss", draw_losses(records)), ("Where the time of a step went", draw_phases(records)))
    note = f"The {MAX_RUNS} latest runs." if len(records) > MAX_RUNS else ""
    return [Picture(title, None, (note,) if note else (), drawing) for title, drawing in found if drawing]


def setting(record: Record, name: str) -> str:
    """A setting of the run, '' when it has none of that name."""
    found = record.config.get(name)
    return str(found.value) if found is not None else ""


def numbers_of(record: Record, name: str) -> list[float]:
    """A curve of ``record``, or nothing when its details hold none: they came from a file."""
    curves = record.details.get("curves")
    values = curves.get(name) if isinstance(curves, dict) else None
    if not isinstance(values, list) or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
        return []
    return [float(v) for v in values]


def answers(records: Sequence[Record]) -> list[tuple[str, str]]:
    """Prompt and answers of the latest runs that were asked something."""
    told: list[tuple[str, str]] = []
    for record in records[::-1]:
        found = record.details.get("answers")
        if isinstance(found, dict) and found.get("prompt") and len(told) < 3 * MAX_ANSWERS:
            told.append((f"{record.label} was asked", str(found["prompt"])))
            told += [(f"{when} training", str(found.get(when) or "nothing")) for when in ("before", "after")]
    return told


def draw_losses(records: Sequence[Record]) -> Drawing | None:
    """Loss over steps of the latest runs that have one; equal curves lie on top of each other."""
    from matplotlib.ticker import MaxNLocator

    runs = [(r, numbers_of(r, "step"), numbers_of(r, "loss")) for r in records]
    runs = [(r, steps, losses) for r, steps, losses in runs if steps and len(steps) == len(losses)][-MAX_RUNS:]
    if not runs:
        return None

    tips: list[str] = []
    with style():
        figure, axes = canvas(2.8)
        handles = []
        names = run_names([r for r, _, _ in runs])
        for index, (name, (_, steps, losses)) in enumerate(zip(names, runs, strict=True)):
            look: dict[str, Any] = {
                "color": SERIES_COLOURS[index % len(SERIES_COLOURS)],
                "marker": SERIES_MARKERS[index % len(SERIES_MARKERS)],
                "markevery": (index % 5, max(1, len(steps) // 8)),
                "markersize": 4,
                "linewidth": 1.1,
            }
            handles += axes.plot(steps, losses, label=label(name), gid=gid(tips), **look)
            tips.append(f"{name}: {losses[0]:.4f} to {losses[-1]:.4f} in {len(steps)} steps")
        unit = next((f.unit for r, _, _ in runs if (f := r.figure("last_loss"))), "")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("step")
        axes.set_ylabel("training loss, nats per target" if unit == "nats" else "training loss")
        axes.grid(**GRID)
        room = 0.55 + 0.055 * max(len(label(name)) for name in names)  # inches beside the curves, not on them
        box = axes.get_position()
        axes.set_position((box.x0, box.y0, box.width - room / WIDTH, box.height))
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1, 1), fontsize=7)
        return Drawing(figure, "Training loss by step", tuple(tips))


def draw_phases(records: Sequence[Record]) -> Drawing | None:
    """Where the time of a median step went in the latest runs, as stacked bars."""
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
        names = run_names([r for r, _ in runs])
        longest = max(len(label(name)) for name in names)
        figure, axes = canvas(0.9 + 0.28 * len(runs), left=0.3 + 0.074 * longest)
        for row, (name, (_, seconds)) in enumerate(zip(names, runs, strict=True)):
            _bar(axes, row, name, seconds, tips)
        axes.set_yticks(range(len(runs)), [label(name) for name in names])
        axes.invert_yaxis()
        axes.set_xlabel("seconds of a step, median")
        axes.grid(axis="x", **GRID)
        from matplotlib.patches import Patch

        legend(axes, [Patch(facecolor=c, hatch=h, edgecolor=INK, label=name) for name, c, h in PHASES], "right")
        return Drawing(figure, "Seconds of a training step by phase", tuple(tips))


def _bar(axes: Axes, row: int, name: str, seconds: Sequence[float], tips: list[str]) -> None:
    left = 0.0
    for (phase, colour, hatch), width in zip(PHASES, seconds, strict=True):
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "#1a1a1a", "linewidth": 0.3}
        axes.barh(row, width, left=left, height=0.7, gid=None, **look)[0].set_gid(gid(tips))
        tips.append(f"{name}: {phase} {width:.3f} s")
        left += width


def run_names(records: Sequence[Record]) -> list[str]:
    """The runs in a legend: label, attention kernel where one was forced, and the id where that does not tell them apart."""
    forced = [setting(r, "attention").replace("auto", "") for r in records]
    names = [f"{r.label}{f', {attention}' if attention else ''}" for r, attention in zip(records, forced, strict=True)]
    return [n if names.count(n) == 1 else f"{n} ({r.id[:4]})" for n, r in zip(names, records, strict=True)]
