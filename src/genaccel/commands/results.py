"""Commands about what is there: report, list, check."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from genaccel import console
from genaccel.commands import app
from genaccel.commands.recording import gathered
from genaccel.errors import UserError, did_you_mean
from genaccel.origins import settings


def report(
    *runs: Path,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    format: Literal["html", "md", "csv"] = "html",
    figures: Path | None = None,
    rows: Annotated[tuple[Path, ...], Parameter(consume_multiple=True)] = (),
) -> None:
    """Write one self-contained report of records, and of predictions and published numbers beside them.

    Parameters
    ----------
    runs
        Folders of records, or their files.
    output
        File to write; by default report.html, report.md or report.csv.
    format
        html, md (Markdown: the same tables without pictures) or csv (a row for every figure).
    figures
        Folder for the figures as PDF files.
    rows
        Files (.json, .csv) of predicted and published numbers to show beside the records.
    """
    from genaccel.export import write_export
    from genaccel.report.html import content_of, render, write_figures
    from genaccel.report.markdown import to_markdown
    from genaccel.report.rows import read_rows
    from genaccel.store import write_text

    others = [row for path in rows for row in read_rows(path)]
    records = gathered(runs)
    path = output or Path(f"report.{format}")
    content = content_of(records, others) if format != "csv" or figures else None
    if format == "csv":
        write_export(records, "csv", path)
    elif content is not None:
        write_text(path, render(content) if format == "html" else to_markdown(content))
    drawn = write_figures(content, figures) if content is not None and figures is not None else []
    console.emit(
        {"report": str(path), "records": len(records), "figures": [str(p) for p in drawn]},
        lambda: console.say(
            f"Report of {len(records)} records: {path}" + (f"; {len(drawn)} figures in {figures}" if drawn else "")
        ),
    )


def list_(what: str | None = None) -> None:
    """Show what there is: devices, models, texts, formats, metrics, targets, and the catalogue of hardware.

    Parameters
    ----------
    what
        One of devices, models, texts, tasks, formats, metrics, targets, accelerators, clusters; all by default.
    """
    from genaccel.inventory import SECTIONS, inventory

    if what is not None and what not in SECTIONS:
        raise UserError(f"There is nothing called '{what}' to list.", did_you_mean(what, SECTIONS))
    found = inventory([what] if what else list(SECTIONS))

    def text() -> None:
        for name, rows in found.items():
            columns = list(rows[0])
            cells = [[str(row[c]) for c in columns] for row in rows]
            numbers = [i for i in range(len(columns)) if all(re.fullmatch(r"-|[\d,.]+", row[i]) for row in cells)]
            console.table(name, columns, cells, right=numbers)

    console.emit(found, text)


def check(*command: str) -> None:
    """Validate a run without running it: 'genaccel check quantize MODEL ...' with the flags the run would have.

    Parameters
    ----------
    command
        The command to validate, as it would be typed after 'genaccel'.
    """
    check_run(command)


def check_run(command: tuple[str, ...]) -> None:
    """Parse ``command`` as if it were run, and resolve everything but run nothing."""
    name = " ".join(command[:1])
    if name not in CHECKS:
        known = ", ".join(CHECKS)
        raise UserError(f"'genaccel check' validates {known}, not '{name}'.", "genaccel check quantize MODEL")
    _, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    resolved = settings(*(value for key, value in given.items() if key in ("config", "judge", "train")))
    found = CHECKS[name](given)

    def text() -> None:
        rows = [[name, str(s.value), s.origin] for name, s in resolved.items()]
        console.table("Resolved configuration", ["setting", "value", "from"], rows)
        for sentence in found.sentences:
            console.say(sentence)

    document = {"device": found.device, "config": {k: asdict(s) for k, s in resolved.items()}} | found.more
    console.emit(document, text)


@dataclass(frozen=True)
class Checked:
    """A run in which nothing is wrong: where it would run, what to say, and more for ``--json``."""

    device: str
    sentences: tuple[str, ...]
    more: dict[str, Any] = field(default_factory=dict)


def _runs_on(device: str) -> Checked:
    return Checked(device, (f"Nothing is wrong with it; it would run on {device}.",))


def _check_quantize(given: dict[str, Any]) -> Checked:
    from genaccel.quantize.run import prepare

    return _runs_on(prepare(given["config"], given["judge"]).device.NAME)


def _check_evaluate(given: dict[str, Any]) -> Checked:
    from genaccel.quantize.baseline import prepare_evaluation

    return _runs_on(prepare_evaluation(given["config"], given["judge"]).device.NAME)


def _check_finetune(given: dict[str, Any]) -> Checked:
    from genaccel.finetune.prepare import check_on_cluster, prepare

    config, train = given["config"], given["train"]
    if config.cluster is None:
        prepared = prepare(config, train)
        device, memory, free = prepared.device.NAME, prepared.memory, None
    else:
        memory, free, nodes = check_on_cluster(config, train)
        device = f"{config.cluster}, on {nodes} node{'s' if nodes > 1 else ''}"
    parts = [[name, console.format_bytes(size)] for name, size in memory.largest_parts()]
    room = "" if free is None else f", which leaves {free:.0%} of the card free"
    sentences = (
        f"Memory of one process, predicted: {console.format_bytes(memory.total_bytes)}{room} "
        f"({', '.join(' '.join(part) for part in parts)}).",
        f"Nothing is wrong with it; it would run on {device}.",
    )
    return Checked(device, sentences, {"memory_estimate": memory.as_dict(), "free_share": free})


CHECKS: dict[str, Callable[[dict[str, Any]], Checked]] = {
    "quantize": _check_quantize,
    "evaluate": _check_evaluate,
    "finetune": _check_finetune,
}
