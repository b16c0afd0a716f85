"""Commands about machines that are not here: predict, advise, validate, calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from genaccel import console

if TYPE_CHECKING:
    from genaccel.predict.validate import Validation


def validate(
    *,
    rows: Annotated[tuple[Path, ...], Parameter(negative_iterable=())] = (),
    worst: int = 10,
    claims: bool = False,
    to: Path | None = None,
) -> None:
    """Predict published rows and compare: errors, coverage and intervals by source, device and workload.

    Rows of a group (source, model, device) that the constants were fitted on are predicted without that group.

    Parameters
    ----------
    rows
        CSV files in the schema of published fine-tuning or inference tables; without any, those of the package.
    worst
        How many of the worst predictions to list.
    claims
        Judge the study's claims instead: the prediction, its interval, and what public rows say.
    to
        With claims: write their table to this file (Markdown).
    """
    if claims:
        _judge_claims(to)
        return
    from genaccel.predict.rows import read_rows
    from genaccel.predict.validate import published_files
    from genaccel.predict.validate import validate as compare

    found = [row for path in (rows or tuple(published_files())) for row in read_rows(path)]
    result = compare(found)
    console.emit(_document(result, worst), lambda: _show(result, worst))


def _judge_claims(to: Path | None) -> None:
    from dataclasses import asdict

    from genaccel.predict.claims import judge_all, markdown
    from genaccel.store import write_text

    found = judge_all()
    table = markdown(found)
    if to is not None:
        write_text(to, CLAIMS_HEAD + table)
    console.emit([asdict(v) | {"says": v.says} for v in found], lambda: console.say(table))


CLAIMS_HEAD = """# The study's claims, predicted

Made by `genaccel validate --claims --to docs/claims.md`; do not edit. Ratios say how many times as fast. Predictions use the
constants of the package, fitted on published rows; public pairs are rows that are alike in everything but what is compared.

"""


def _tables(result: Validation) -> dict[str, list[dict[str, Any]]]:
    from genaccel.predict.validate import kind_of

    keys = {
        "source": lambda r: r.source,
        "device": lambda r: r.cells["device"],
        "workload": _workload_name,
        "kind": kind_of,
        "all": lambda _: "all rows",
    }
    return {kind: result.by(key) for kind, key in keys.items()}


def _workload_name(row: Any) -> str:
    if row.memory:
        return "peak memory"
    return str(row.cells.get("workload") or "llm training")


def _document(result: Validation, worst: int) -> dict[str, Any]:
    from collections import Counter

    from genaccel.predict.validate import reason

    return {
        "rows": result.num_rows,
        "suspect": len(result.suspect),
        "predicted": len(result.verdicts),
        "share_predicted": result.share_predicted,
        "not_predicted": dict(Counter(row.problem or "" for row in result.refused)),
        "tables": _tables(result),
        "worst": [
            {
                "row": v.row.number,
                "source": v.row.source,
                "what": v.row.where,
                "metric": v.row.cells["metric"],
                "published": v.row.value,
                "predicted": v.predicted,
                "low": v.low,
                "high": v.high,
                "reason": reason(v),
            }
            for v in sorted(result.verdicts, key=lambda v: -v.error)[:worst]
        ],
    }


def _show(result: Validation, worst: int) -> None:
    document = _document(result, worst)
    columns = ["", "rows", "predicted", "median error", "mean error", "in 80 % interval"]
    for kind, lines in document["tables"].items():
        table = [
            [
                line["name"],
                str(line["rows"]),
                f"{line['predicted']:.0%}",
                *(
                    f"{line[key]:.1%}" if line[key] is not None else "-"
                    for key in ("median_error", "mean_error", "inside")
                ),
            ]
            for line in lines
        ]
        console.table(f"Predicted against published, by {kind}", columns, table, (1, 2, 3, 4, 5))
    reasons = [[reason, str(count)] for reason, count in sorted(document["not_predicted"].items())]
    reasons.append(["flagged as suspect in the table, left out", str(len(result.suspect))])
    console.table("Not predicted", ["reason", "rows"], reasons, (1,))
    lines = [
        [str(w["row"]), w["what"], w["metric"], f"{w['published']:.4g}", f"{w['predicted']:.4g}", w["reason"]]
        for w in document["worst"]
    ]
    console.table("Worst", ["row", "what", "metric", "published", "predicted", "reason"], lines, (0, 3, 4))
    console.say(
        f"{len(result.verdicts)} of {result.num_rows - len(result.suspect)} rows predicted "
        f"({result.share_predicted:.1%}); groups that the constants were fitted on were left out of the fit."
    )


def calibrate(
    runs: Path | None = None,
    *,
    on: str | None = None,
    to: Path | None = None,
    rows: Annotated[tuple[Path, ...], Parameter(negative_iterable=())] = (),
    package: bool = False,
) -> None:
    """Fit the constants of the time models to published rows, and say how far off left-out groups are.

    With a folder of records: fit corrections for the machine that they ran on, to go with the constants of the package.

    Parameters
    ----------
    runs
        Folder of records of fine-tuning.
    on
        Accelerator that the records ran on, when the catalogue does not know it by what the record calls it.
    to
        With records: file for the corrections; as constants.toml in the folder that GENACCEL_CATALOGUE names they are used.
    rows
        CSV files with published rows; without any, those of the package.
    package
        Store constants and errors in the catalogue of this installation.
    """
    if runs is not None:
        _calibrate_records(runs, on, to)
        return
    from importlib import resources

    import numpy as np

    from genaccel.predict.calibrate import calibrate as fit_all
    from genaccel.predict.calibrate import constants_toml, errors_csv
    from genaccel.predict.rows import read_rows
    from genaccel.predict.validate import published_files
    from genaccel.store import write_text

    found = fit_all([row for path in (rows or tuple(published_files())) for row in read_rows(path)])
    catalogue = Path(str(resources.files("genaccel").joinpath("catalogue")))
    if package:
        write_text(catalogue / "constants.toml", constants_toml(found))
        write_text(catalogue / "published" / "errors.csv", errors_csv(found))
    document = {
        name: {"rows": len(c.rows), "median_error": float(np.median(np.abs(np.expm1(c.errors))))}
        for name, c in found.items()
    }

    def text() -> None:
        lines = [[name, str(d["rows"]), f"{d['median_error']:.1%}"] for name, d in document.items()]
        console.table("Fitted", ["time model", "rows", "median error of left-out groups"], lines, (1, 2))
        if package:
            console.say(f"Written to {catalogue / 'constants.toml'} and its errors beside the published rows.")

    console.emit(document, text)


def _calibrate_records(runs: Path, on: str | None, to: Path | None) -> None:
    from genaccel.errors import UserError
    from genaccel.predict.calibrate import corrections_toml
    from genaccel.predict.own_records import errors_of, own_corrections, own_steps
    from genaccel.store import read_records, write_text

    found, problems = own_steps(read_records(runs)[0], on)
    for sentence in problems:
        console.warn(f"Left out: {sentence}")
    if not found:
        raise UserError(
            f"No record in {runs} can be fitted.", "Records of 'genaccel finetune' with catalogue models can."
        )
    own = own_corrections(found)
    before, after = errors_of(found), errors_of(found, own)
    if to is not None:
        write_text(to, "\n".join(["# Corrections from one's own records.", *corrections_toml(own)]) + "\n")
    rows = [
        [o.record.label, k.device, f"{o.seconds:.4g} s", f"{b:.2f}", f"{a:.2f}"]
        for (o, k, b), (_, _, a) in zip(before, after, strict=True)
    ]
    columns = ["record", "device", "step, measured", "predicted / measured before", "after"]
    document = [
        {"record": o.record.id, "device": k.device, "seconds": o.seconds, "before": b, "after": a}
        for (o, k, b), (_, _, a) in zip(before, after, strict=True)
    ]
    console.emit(document, lambda: console.table("Corrections from records", columns, rows, (2, 3, 4)))
