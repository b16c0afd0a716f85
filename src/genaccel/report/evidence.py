"""What stands behind the report's table: pictures of sensitivity, plan and quality, kernels, and where a record ran.

A record's ``details`` belong to its job and came from a file, so their shape is checked here. What cannot be read is
left out and said so.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from genaccel.compare.numbers import known
from genaccel.compare.perplexity import Group
from genaccel.records import Environment, Record
from genaccel.report import figures
from genaccel.report.figures import LayerDot, PlanCell, QualityPoint
from genaccel.report.parts import Anchors, Cell, Column, Picture, Row, RowGroup, Table

MAX_PICTURES = 6  # of each sort, the most recent: they are read one by one, unlike rows
MAX_POINTS = 200  # in one picture
MAX_DEPTH = 3  # of the details that are listed as facts
ROW_CLASSES = ("few rows", "some rows", "many rows")

T = TypeVar("T")


@dataclass(frozen=True)
class KernelLine:
    """Kernels for weights of one format and shape: (kernel, its measured microseconds) for each class of row counts."""

    format: str
    shape: str
    choices: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True)
class KernelTable:
    """Kernels of one record, how they were chosen, and why others were left out."""

    record: Record
    classes: tuple[str, ...]
    lines: tuple[KernelLine, ...]
    origins: tuple[str, ...]
    left_out: tuple[str, ...]
    part: Literal["kernels"] = "kernels"


@dataclass(frozen=True)
class Place:
    """An environment with its number in the report and how many records ran there."""

    number: int
    environment: Environment
    num_records: int


def latest_distinct(
    records: Sequence[Record], part: str, show: Callable[[Record], tuple[object, Callable[[], T]]], problems: list[str]
) -> list[T]:
    """What ``show`` makes of the most recent records (given first) whose ``details`` hold ``part``, one for each key.

    ``show`` returns a key and a function that makes the thing, called for the first record of a key. At most
    ``MAX_PICTURES`` are made; a record whose ``part`` has an unexpected shape adds a sentence to ``problems``.
    """
    made: dict[object, T] = {}
    for record in records:
        if len(made) == MAX_PICTURES:
            break
        if not record.details.get(part):
            continue
        try:
            key, make = show(record)
            if key not in made:
                made[key] = make()
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            problems.append(f"The {part.replace('_', ' ')} of record {record.id} has an unknown shape and is left out.")
    return list(made.values())


# --- Sensitivity and plan ---------------------------------------------------------------------------------------------


def show_sensitivity(record: Record) -> tuple[object, Callable[[], Picture]]:
    """One picture for each model and metric."""
    found = record.details["sensitivity"]
    metric = str(found["metric"])

    def make() -> Picture:
        formats = _formats_by_layer(record)
        scores = [float(score) for score in found["scores"]]
        if not scores or not all(map(math.isfinite, scores)):
            raise ValueError("a score is missing")
        dots = [LayerDot(layer, score, formats.get(layer, "")) for layer, score in enumerate(scores)]
        settings = ", ".join(
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {shown(v)}"
            for k, v in (found.get("settings") or {}).items()
        )
        notes = [f"Measured with {settings}." if settings else "Measured."]
        if formats:
            notes.append(f"Marks show the plan for {record.target}: {plan_method(record)}.")
        return Picture(
            f"{record.model}, {metric}", record, tuple(notes), figures.draw_sensitivity(record.model, metric, dots)
        )

    return (record.model, metric), make


def show_plan(record: Record) -> tuple[object, Callable[[], Picture]]:
    """One picture for each model and assignment of formats."""
    listed = record.details["layer_formats"]

    def make() -> Picture:
        cells = _plan_cells(record)
        weights: Counter[str] = Counter()
        for _, _, form, num_elements in listed:
            weights[form] += int(num_elements)
        shares = ", ".join(f"{form} {count / weights.total():.1%}" for form, count in weights.most_common())
        notes = [f"Share of the weights, counted from the plan: {shares}."]
        if not any(c.row == "head" for c in cells):
            notes.append("The head has no tensor of its own: it shares the embedding's.")
        title = f"{record.model} for {record.target}: {plan_method(record)}"
        return Picture(title, record, tuple(notes), figures.draw_plan(record.model, cells))

    return (record.model, json.dumps(listed)), make


def _plan_cells(record: Record) -> list[PlanCell]:
    """One cell for each layer and module; numbered modules of a layer (experts) share one."""
    listed = record.details.get("layer_formats") or []
    cells: dict[tuple[int | None, str], PlanCell] = {}
    for name, place, form, _ in listed:
        layer = int(place) if place.isdecimal() else None
        if layer is not None and layer >= len(listed):
            raise ValueError(f"layer {layer} of at most {len(listed)}")
        module = re.sub(r"\b\d+\b", "*", name.partition(f".{place}.")[2]) or name
        key = (layer, module if layer is not None else name)
        cell = PlanCell(layer, module if layer is not None else place, form, name)
        other = cells.setdefault(key, cell)
        if other.format != form:
            cells[key] = replace(other, format="mixed")
    return list(cells.values())


def _formats_by_layer(record: Record) -> dict[int, str]:
    formats: dict[int, str] = {}
    for cell in _plan_cells(record):
        if cell.layer is not None and formats.setdefault(cell.layer, cell.format) != cell.format:
            formats[cell.layer] = "mixed"
    return formats


def plan_method(record: Record) -> str:
    """The plan in words, '' without one."""
    plan = record.details.get("plan")
    return str(plan.get("method", "")) if isinstance(plan, dict) else ""


# --- Quality ----------------------------------------------------------------------------------------------------------


def quality_pictures(groups: Sequence[Group]) -> list[Picture]:
    """Perplexity over compression for the most recent groups that have at least two points (FP32 is one, at 1x)."""
    pictures: list[Picture] = []
    for group in sorted(groups, key=lambda g: max((r.created, r.id) for r in g.records), reverse=True):
        points: dict[QualityPoint, Record] = {}
        for record in sorted(group.records, key=lambda r: (r.created, r.id), reverse=True):
            point = _quality_point(record)
            if point and len(points) < MAX_POINTS:
                points.setdefault(point, record)
        if not points or len(pictures) == MAX_PICTURES:
            continue
        latest = next(iter(points.values()))
        reference = group.reference(latest)
        fp32 = known(reference, "perplexity") if reference else None
        if len(points) + (fp32 is not None) < 2:
            continue
        notes = [f"{group.protocol}.", "Hollow marks: the compression is predicted from the plan, nothing was stored."]
        if len(points) == MAX_POINTS:
            notes.append(f"Only the {MAX_POINTS} most recent points are drawn.")
        drawing = figures.draw_quality(group.model, list(points), fp32.value if fp32 else None)
        pictures.append(Picture(group.model, None, tuple(notes), drawing))
    return pictures


def _quality_point(record: Record) -> QualityPoint | None:
    compression, perplexity = known(record, "compression"), known(record, "perplexity")
    if compression is None or perplexity is None:
        return None
    series = f"{record.mode} {record.target}".strip()
    name = ", ".join(filter(None, (f"{record.model} {series}", plan_method(record))))
    measured = compression.kind == perplexity.kind == "measured"
    return QualityPoint(compression.value, perplexity.value, series, name, measured)


# --- Kernels ----------------------------------------------------------------------------------------------------------


def show_kernels(record: Record) -> tuple[object, Callable[[], KernelTable]]:
    """One table for each model, accelerator and choice of kernels."""
    found: dict[str, dict[str, Any]] = record.details["kernels"]
    chosen = {key: list(entry["kernels"]) for key, entry in found.items()}

    def make() -> KernelTable:
        lines = []
        for key, entry in found.items():
            form, _, shape = key.rpartition(" ")
            times = entry.get("microseconds") or {}
            choices = [(str(k), float(times[k][i]) if k in times else None) for i, k in enumerate(entry["kernels"])]
            lines.append(KernelLine(form, shape, tuple(choices)))
        reasons = Counter(
            f"{name}: {why}" for entry in found.values() for name, why in (entry.get("left_out") or {}).items()
        )
        left_out = [f"{reason} ({count} of {len(found)} shapes)" for reason, count in reasons.items()]
        origins = dict.fromkeys(str(entry.get("origin", "")) for entry in found.values())
        num_classes = max(len(line.choices) for line in lines)
        if any(len(line.choices) != num_classes for line in lines) or num_classes > len(ROW_CLASSES):
            raise ValueError("unknown classes of row counts")
        return KernelTable(
            record, ROW_CLASSES[:num_classes], tuple(lines), tuple(filter(None, origins)), tuple(left_out)
        )

    return (record.model, record.environment.accelerator, json.dumps(chosen)), make


# --- Estimates --------------------------------------------------------------------------------------------------------


def estimates(records: Sequence[Record], anchors: Anchors) -> Table | None:
    """Figures with an error bar (accuracies, differences) by name and protocol; perplexity has its place in the table."""
    found: dict[tuple[str, str], list[Row]] = {}
    for record in records:
        for figure in record.figures:
            if figure.interval is None or figure.value is None or figure.name == "perplexity":
                continue
            error = "" if figure.stderr is None else f"{figure.stderr:.4f}"
            cells = (
                Cell(record.model),
                Cell(run_name(record)),
                Cell(f"{figure.value:.4f}", f"{figure.kind}; {figure.protocol}", figure.kind, figure.value),
                Cell(error or "–", "" if error else "unknown", value=figure.stderr),
                Cell("{:.4f} to {:.4f}".format(*figure.interval)),
                Cell(figure.note),
                anchors.record_cell(record),
            )
            row = Row(cells, (record.created, record.id), {"model": record.model, "figure": figure.name}, record.label)
            found.setdefault((figure.name, figure.protocol), []).append(row)
    if not found:
        return None
    groups = [RowGroup(name, tuple(rows), protocol) for (name, protocol), rows in sorted(found.items())]
    columns = (
        Column("model"), Column("run"), Column("value", True), Column("standard error", True),
        Column("95 % interval", True), Column("note", look="wide"), Column("record"),
    )  # fmt: skip
    caption = "Figures with an error bar; only those under one heading were obtained alike"
    return Table("estimates-table", caption, columns, tuple(groups), ("model", "figure"))


def run_name(record: Record) -> str:
    """How a judged model was computed, and for which target."""
    return f"{'FP32' if record.mode == 'fp32' else record.mode} {record.target}".strip()


# --- Origins ----------------------------------------------------------------------------------------------------------


def places(records: Sequence[Record]) -> dict[str, Place]:
    """The environments that ``records`` ran in, by ``place_key``, numbered in the order of their first record."""
    found: dict[str, Place] = {}
    for record in records:
        place = found.setdefault(place_key(record), Place(len(found) + 1, record.environment, 0))
        found[place_key(record)] = replace(place, num_records=place.num_records + 1)
    return found


def place_key(record: Record) -> str:
    """Tells environments apart."""
    return json.dumps(vars(record.environment), sort_keys=True)


def config_by_origin(record: Record) -> dict[str, list[tuple[str, str]]]:
    """(name, value) of every setting, by where it came from, what a person gave first."""
    origins = ("flag", "file", "environment", "program", "default")
    return {
        origin: settings
        for origin in origins
        if (settings := [(name, shown(s.value)) for name, s in record.config.items() if s.origin == origin])
    }


def facts(details: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """(name, value) of every single value in ``details``; lists, kernels and a plan's lines are shown elsewhere."""
    for name, value in details.items():
        if isinstance(value, dict):
            if name not in ("kernels", "formats") and prefix.count(".") < MAX_DEPTH:
                yield from facts(value, f"{prefix}{name}.")
        elif not isinstance(value, list):
            yield f"{prefix}{name}", shown(value)


def shown(value: Any) -> str:
    """A setting's value as text: strings as they are, the rest as JSON, nothing as 'none'."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def warnings_by_text(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Every warning with the records that carry it, latest first."""
    found: dict[str, list[Record]] = {}
    for record in records:
        for warning in dict.fromkeys(record.warnings):
            found.setdefault(warning, []).append(record)
    return found
