"""Rows of published measurements, as their tables have them, turned into questions that the time models can answer."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError, did_you_mean
from genaccel.predict.imaging import Drawing
from genaccel.predict.serving import Request
from genaccel.predict.training import TrainingStep

TRAINING_COLUMNS = [
    "source",
    "model",
    "params_b",
    "method",
    "strategy",
    "cards",
    "device",
    "precision",
    "seq_len",
    "global_batch",
    "flash_attention",
    "metric",
    "value",
    "unit",
    "notes",
]
INFERENCE_COLUMNS = [
    "source",
    "workload",
    "model",
    "params_b",
    "device",
    "cards",
    "precision",
    "batch",
    "prompt_len",
    "new_tokens",
    "metric",
    "value",
    "unit",
    "notes",
]
OPTIONAL = {"params_b", "flash_attention", "unit", "notes"}
Cells = Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """What a row asks, and how its value follows from seconds: ``factor / seconds`` for rates, ``factor * seconds`` else.

    ``warnings`` say what had to be assumed.
    """

    asked: Request | TrainingStep | Drawing
    factor: float
    rate: bool
    warnings: tuple[str, ...] = ()

    def value(self, seconds: float) -> float:
        """The row's figure if its step or request takes so long."""
        return self.factor / seconds if self.rate else self.factor * seconds

    def seconds(self, value: float) -> float:
        """How long a step or request took if this is the row's figure."""
        return self.factor / value if self.rate else value / self.factor


@dataclass(frozen=True)
class Row:
    """One published figure. ``question`` is None when ``problem`` says why it cannot be predicted."""

    number: int
    table: Literal["training", "inference"]
    cells: Cells
    value: float
    workload: str
    group: str
    question: Question | None = None
    problem: str | None = None
    suspect: bool = False
    memory: bool = False

    @property
    def source(self) -> str:
        """Who published it."""
        return self.cells["source"]

    @property
    def where(self) -> str:
        """Source, model and device in one line, for people."""
        return f"{self.cells['model']} on {self.cells.get('cards') or '?'} {self.cells['device']}"


class Unpredictable(Exception):
    """A row that cannot be predicted; its message says why."""


def read_table(path: Path) -> tuple[str, list[dict[str, str]]]:
    """('training' or 'inference', rows) of a CSV file; columns that are not known are ignored, missing ones named."""
    if not path.is_file():
        raise UserError(f"There is no file {path}.", "Give the path of a CSV file with published rows.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            columns = [c.strip() for c in reader.fieldnames or []]
            rows = [{str(k).strip(): (v or "").strip() for k, v in row.items() if k} for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path} is no CSV file in UTF-8: {error}.", "") from None
    table = "training" if "strategy" in columns or "seq_len" in columns else "inference"
    wanted = TRAINING_COLUMNS if table == "training" else INFERENCE_COLUMNS
    missing = [c for c in wanted if c not in columns and c not in OPTIONAL]
    if missing:
        near = did_you_mean(missing[0], columns) if columns else ""
        raise UserError(f"{path} has no column {', '.join(missing)}.", near or "Its first line must name the columns.")
    return table, [{c: row.get(c, "") for c in wanted} for row in rows]


def number_in(text: str) -> float | None:
    """The number that a cell holds; None for an empty cell or words."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def in_notes(pattern: str, cells: Cells) -> re.Match[str] | None:
    """Where the notes match, regardless of case."""
    return re.search(pattern, cells["notes"], re.IGNORECASE)


def group_of(cells: Cells) -> str:
    """Source, model and device: rows that share all three say the same thing several times."""
    return "|".join(cells[c].lower() for c in ("source", "model", "device"))


def group_id(group: str) -> str:
    """A short name of a group, for tables."""
    return hashlib.sha256(group.encode()).hexdigest()[:8]


def read_rows(path: Path) -> list[Row]:
    """All rows of a file, each with its question or the reason why there is none."""
    from genaccel.predict.rows_imaging import imaging_question
    from genaccel.predict.rows_serving import serving_question
    from genaccel.predict.rows_training import training_question

    table, cells_of_rows = read_table(path)
    rows = []
    for number, cells in enumerate(cells_of_rows, 2):
        value = number_in(cells["value"])
        workload = "training" if table == "training" else workload_of(cells)
        memory = "memory" in cells["metric"]
        suspect = any(word in cells["notes"] for word in ("SUSPECT", "placeholder"))
        row = Row(number, table, cells, value or 0.0, workload, group_of(cells), suspect=suspect, memory=memory)  # type: ignore[arg-type]
        question, problem = None, None
        if value is None or value <= 0:
            problem = "no positive value"
        else:
            ask = {"training": training_question, "serving": serving_question}.get(workload, imaging_question)
            try:
                question = ask(cells)
            except Unpredictable as error:
                problem = str(error)
            except UserError as error:
                problem = error.message
        rows.append(
            Row(number, table, cells, row.value, workload, row.group, question, problem, suspect, memory)  # type: ignore[arg-type]
        )
    return rows


def workload_of(cells: Cells) -> str:
    """serving, imaging or training, from what a row of the inference table calls its workload."""
    name = cells["workload"].lower()
    if name.startswith("llm") or "generation" in name:
        return "serving"
    if "bert" in cells["model"].lower():
        return "training"
    return "imaging" if "diffusion" in name or "image" in name or "cnn" in name else "training"


def slug(text: str) -> str:
    """A name as stacks have it: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")
