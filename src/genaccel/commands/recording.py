"""Commands on records: records ls, show, export; compare."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from genaccel import console
from genaccel.errors import UserError, did_you_mean
from genaccel.records import Record
from genaccel.store import gather_records

records = App(name="records", help="List, show and export records.", help_format="plaintext")
RUNS = (Path("runs"),)


def gathered(runs: tuple[Path, ...]) -> list[Record]:
    """The records of ``runs``; what is none is warned about, and nothing at all is an error."""
    found, problems = gather_records(runs or RUNS)
    for problem in problems:
        console.warn(problem)
    if not found:
        raise UserError(
            f"There are no records in {', '.join(map(str, runs or RUNS))}.",
            "Run 'genaccel quantize' first, or name another folder.",
        )
    return found


@records.command
def ls(*runs: Path, job: str | None = None, model: str | None = None) -> None:
    """List records, oldest first.

    Parameters
    ----------
    runs
        Folders of records, or their files.
    job
        Only those of this job: quantize, evaluate, finetune or superres.
    model
        Only those of this model.
    """
    everything = gathered(runs)
    found = [r for r in everything if job in (None, r.job) and model in (None, r.model)]
    if not found:
        known = sorted({r.job for r in everything} | {r.model for r in everything})
        raise UserError("No record is of that job and model.", did_you_mean(model or job or "", known))

    def text() -> None:
        rows = [
            [r.id, r.created[:16].replace("T", " "), r.job, r.label, r.environment.accelerator or r.environment.device,
             str(len(r.figures)), str(len(r.warnings) or "")]
            for r in found
        ]  # fmt: skip
        console.table("", ["record", "created", "job", "run", "ran on", "figures", "warnings"], rows, (5, 6))

    columns = ("id", "created", "job", "label", "model", "mode", "target")
    console.emit([{c: getattr(r, c) for c in columns} for r in found], text)


@records.command
def show(record: str, *runs: Path) -> None:
    """Show one record: every figure with its protocol, the settings with their origins, where it ran.

    Parameters
    ----------
    record
        Its id, or the first characters of it.
    runs
        Folders of records, or their files.
    """
    from genaccel.summary import print_record

    everything = gathered(runs)
    found = [r for r in everything if r.id.startswith(record)]
    if len(found) != 1:
        said = "Several records begin" if found else "No record begins"
        hint = ", ".join(r.id for r in found[:5]) if found else did_you_mean(record, [r.id for r in everything[-20:]])
        raise UserError(f"{said} with '{record}'.", hint)
    console.emit(asdict(found[0]), lambda: print_record(found[0]))


@records.command
def export(
    *runs: Path,
    format: Literal["csv", "parquet"] = "csv",
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Write a table with a row for every figure of every record.

    Parameters
    ----------
    runs
        Folders of records, or their files.
    format
        csv or parquet.
    output
        File to write; by default records.csv or records.parquet.
    """
    from genaccel.export import write_export

    found = gathered(runs)
    path = output or Path(f"records.{format}")
    write_export(found, format, path)
    rows = sum(len(r.figures) for r in found)
    console.emit(
        {"export": str(path), "records": len(found), "rows": rows},
        lambda: console.say(f"{rows} figures of {len(found)} records: {path}"),
    )


def compare(
    *runs: Path,
    by: str | None = None,
    metric: str | None = None,
    base: str | None = None,
    price: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    pareto: str | None = None,
) -> None:
    """Compare records that are alike in everything but one thing, as ratios with 95 % intervals; refuse unlike ones.

    Parameters
    ----------
    runs
        Folders of records, or their files.
    by
        What may differ: accelerator, strategy, attention, precision, processes, mode, model or any setting.
    metric
        The figure to compare, or the end of its name: tokens_per_second.
    base
        The value of --by that others are compared with.
    price
        Dollars an hour of one device, such as a100=1.8: gives the cost of a million tokens.
    pareto
        Two metrics, such as bytes,perplexity: which runs no other run beats.
    """
    from genaccel.compare.alignment import Asked
    from genaccel.compare.alignment import compare as align
    from genaccel.compare.pareto import pareto_sets
    from genaccel.summary_compared import print_comparisons, print_fronts

    if pareto is not None:
        fronts = pareto_sets(gathered(runs), pareto.split(","))
        return console.emit([asdict(f) for f in fronts], lambda: print_fronts(fronts))
    if by is None or metric is None:
        raise UserError(
            "It takes --by and --metric, or --pareto.", "genaccel compare runs --by strategy --metric tokens_per_second"
        )
    found = align(gathered(runs), Asked(by, metric, base, _prices(price)))
    return console.emit(asdict(found), lambda: print_comparisons(found))


def _prices(given: tuple[str, ...]) -> dict[str, float]:
    prices = {}
    for text in given:
        name, _, value = text.partition("=")
        try:
            prices[name] = float(value)
        except ValueError:
            raise UserError(f"--price {text} is no accelerator and price.", "For example --price a100=1.8.") from None
        if not 0 <= prices[name] < 1e6:
            raise UserError(f"--price {text} is no price in dollars an hour.", "For example --price a100=1.8.")
    return prices
