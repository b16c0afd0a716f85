"""Commands about quantization: quantize, evaluate, sensitivity, plan, reproduce."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from genaccel import console
from genaccel.commands import Flat
from genaccel.evaluate.config import EvaluateConfig, JudgeConfig
from genaccel.origins import settings
from genaccel.quantize.config import QuantizeConfig
from genaccel.summary import print_dust, print_table, show_records


def quantize(config: Annotated[QuantizeConfig, Flat], judge: Annotated[JudgeConfig, Flat] = JudgeConfig()) -> None:  # noqa: B008
    """Quantize a model, judge it beside FP32, and leave a record (and, with --output, a checkpoint)."""
    from genaccel.quantize.run import prepare, run

    outcome = run(prepare(config, judge), settings(config, judge))
    show_records([r for r in (outcome.baseline, outcome.record) if r], outcome.path)


def evaluate(config: Annotated[EvaluateConfig, Flat], judge: Annotated[JudgeConfig, Flat] = JudgeConfig()) -> None:  # noqa: B008
    """Judge a model or a quantized checkpoint by perplexity, tasks and speed, and leave a record."""
    from genaccel.quantize.baseline import evaluate_model, prepare_evaluation

    record, path = evaluate_model(prepare_evaluation(config, judge), settings(config, judge))
    show_records([record], path)


def sensitivity(config: Annotated[QuantizeConfig, Flat], *, to: Path = Path("sensitivity.json")) -> None:
    """Score every decoder layer (phase 1) and write the report.

    Parameters
    ----------
    to
        File to write.
    """
    from genaccel import models
    from genaccel.quantize.run import measured_sensitivity, prepare_unjudged

    prepared = prepare_unjudged(config)
    report = measured_sensitivity(prepared, models.open_weights(prepared.source, prepared.layout))
    report.save(to)

    def text() -> None:
        rows = [[s.name, f"{s.score:.4f}", f"{s.num_weights:,}"] for s in report.ranked()]
        console.table(f"Sensitivity of {report.model} ({report.metric})", ["layer", "score", "weights"], rows, (1, 2))
        console.say(f"Written to {to}")

    console.emit(asdict(report), text)


def plan(config: Annotated[QuantizeConfig, Flat], *, to: Path = Path("plan.toml")) -> None:
    """Make a precision plan (phase 2) from a sensitivity report, or measure that first, and write it for editing.

    Parameters
    ----------
    to
        File to write; edit it and give it back with 'genaccel quantize --plan'.
    """
    from genaccel import models
    from genaccel.quantize.run import measured_sensitivity, planned, prepare_unjudged

    prepared = prepare_unjudged(config)
    layout = prepared.layout
    report = prepared.sensitivity or measured_sensitivity(prepared, models.open_weights(prepared.source, layout))
    made = planned(prepared, report)
    size = layout.num_bytes(layout.resolve(made.formats))
    made.save(to)

    def text() -> None:
        console.say(
            f"{made.method}: {console.format_bytes(size)}, {layout.fp32_bytes / size:.3f}x smaller than FP32 (predicted)"
        )
        console.say(f"Written to {to}")

    console.emit(asdict(made) | {"tensor_bytes": size, "compression": layout.fp32_bytes / size}, text)


def reproduce(
    *,
    models: tuple[str, ...] = ("smollm2-135m",),
    shares: tuple[float, ...] = (0.5,),
    real: tuple[str, ...] = ("cpu",),
    judge: Annotated[JudgeConfig, Flat] = JudgeConfig(),  # noqa: B008
    dust_minutes: float | None = None,
    runs: Path = Path("runs"),
    output: Annotated[Path, Parameter(alias="-o")] = Path("report.html"),
) -> None:
    """Redo the study: its quantization table (FP32, then cpu, a100 and gaudi2, fake and real), and super-resolution of dust.

    Parameters
    ----------
    models
        Models to quantize.
    shares
        Shares of layers in the higher precision.
    real
        Targets whose formats are also stored and computed, on this machine's device.
    dust_minutes
        Also train a super-resolver of dust maps for this long, and judge it.
    runs
        Folder for the records.
    output
        HTML report to write.
    """
    from genaccel.report import write_report
    from genaccel.reproduce import dust_study, quantization_study

    quantized = quantization_study(models, shares, real, judge, runs)
    dust = [] if dust_minutes is None else dust_study(dust_minutes, runs)
    records = quantized + dust
    write_report(records, output)

    def text() -> None:
        print_table(quantized)
        for record in dust:
            print_dust(record)
        console.say(f"Records in {runs}, report: {output}")

    console.emit({"records": [r.id for r in records], "report": str(output)}, text)
