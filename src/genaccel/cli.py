"""The command line: parse, call one function, print. Heavy imports happen inside the commands that need them."""

from __future__ import annotations

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError
from cyclopts.config import Toml

from genaccel import __version__, console
from genaccel.errors import UserError, did_you_mean
from genaccel.evaluate.config import EvaluateConfig, JudgeConfig
from genaccel.origins import note_origins, settings
from genaccel.quantize.config import QuantizeConfig
from genaccel.summary import print_table, show_records

app = App(
    name="genaccel",
    help="Make generative AI models cheaper to run, and measure what that bought.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative_iterable=()),
)
Flat = Parameter(name="*")


# --- Commands ---------------------------------------------------------------------------------------------------------


@app.command
def quantize(config: Annotated[QuantizeConfig, Flat], judge: Annotated[JudgeConfig, Flat] = JudgeConfig()) -> None:  # noqa: B008
    """Quantize a model, judge it beside FP32, and leave a record (and, with --output, a checkpoint)."""
    from genaccel.quantize.run import prepare, run

    outcome = run(prepare(config, judge), settings(config, judge))
    show_records([r for r in (outcome.baseline, outcome.record) if r], outcome.path)


@app.command
def evaluate(config: Annotated[EvaluateConfig, Flat], judge: Annotated[JudgeConfig, Flat] = JudgeConfig()) -> None:  # noqa: B008
    """Judge a model or a quantized checkpoint by perplexity, tasks and speed, and leave a record."""
    from genaccel.quantize.baseline import evaluate_model, prepare_evaluation

    record, path = evaluate_model(prepare_evaluation(config, judge), settings(config, judge))
    show_records([record], path)


@app.command
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


@app.command
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


@app.command
def report(runs: Path = Path("runs"), *, output: Annotated[Path, Parameter(alias="-o")] = Path("report.html")) -> None:
    """Write one self-contained HTML report from a folder of records.

    Parameters
    ----------
    runs
        Folder of records.
    output
        HTML file to write.
    """
    from genaccel.report import write_report
    from genaccel.store import read_records

    records, problems = read_records(runs)
    for problem in problems:
        console.warn(problem)
    if not records:
        raise UserError(f"There are no records in {runs}.", "Run 'genaccel quantize' first.")
    write_report(records, output)
    console.emit(
        {"report": str(output), "records": len(records)},
        lambda: console.say(f"Report of {len(records)} records: {output}"),
    )


@app.command
def reproduce(
    *,
    models: tuple[str, ...] = ("smollm2-135m",),
    shares: tuple[float, ...] = (0.5,),
    real: tuple[str, ...] = ("cpu",),
    judge: Annotated[JudgeConfig, Flat] = JudgeConfig(),  # noqa: B008
    runs: Path = Path("runs"),
    output: Annotated[Path, Parameter(alias="-o")] = Path("report.html"),
) -> None:
    """Redo the study's quantization table: FP32, then cpu, a100 and gaudi2, fake, and real where it can run here.

    Parameters
    ----------
    models
        Models to quantize.
    shares
        Shares of layers in the higher precision.
    real
        Targets whose formats are also stored and computed, on this machine's device.
    runs
        Folder for the records.
    output
        HTML report to write.
    """
    from genaccel.report import write_report
    from genaccel.reproduce import quantization_study

    records = quantization_study(models, shares, real, judge, runs)
    write_report(records, output)

    def text() -> None:
        print_table(records)
        console.say(f"Records in {runs}, report: {output}")

    console.emit({"records": [r.id for r in records], "report": str(output)}, text)


@app.command(name="list")
def list_(what: str | None = None) -> None:
    """Show devices and what was probed on them, models, texts, formats, metrics and targets.

    Parameters
    ----------
    what
        One of devices, models, texts, tasks, formats, metrics, targets; all by default.
    """
    from genaccel.inventory import SECTIONS, inventory

    if what is not None and what not in SECTIONS:
        raise UserError(f"There is nothing called '{what}' to list.", did_you_mean(what, SECTIONS))
    found = inventory([what] if what else list(SECTIONS))

    def text() -> None:
        for name, rows in found.items():
            columns = list(rows[0])
            console.table(name, columns, [[str(row[c]) for c in columns] for row in rows])

    console.emit(found, text)


@app.command
def check(*command: str) -> None:
    """Validate a run without running it: 'genaccel check quantize MODEL ...' with the flags the run would have.

    Parameters
    ----------
    command
        The command to validate, as it would be typed after 'genaccel'.
    """
    _check(command)


def _check(command: tuple[str, ...]) -> None:
    """Parse ``command`` as if it were run, and resolve everything but run nothing."""
    if command[:1] not in (("quantize",), ("evaluate",)):
        name = " ".join(command[:1])
        raise UserError(
            f"'genaccel check' validates quantize or evaluate, not '{name}'.", "genaccel check quantize MODEL"
        )
    from genaccel.quantize.baseline import prepare_evaluation
    from genaccel.quantize.run import prepare

    function, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
    bound.apply_defaults()
    given = bound.arguments
    if function is quantize:
        resolved = settings(given["config"], given["judge"])
        device = prepare(given["config"], given["judge"]).device.NAME
    else:
        resolved = settings(given["config"], given["judge"])
        device = prepare_evaluation(given["config"], given["judge"]).device.NAME

    def text() -> None:
        rows = [[name, str(s.value), s.origin] for name, s in resolved.items()]
        console.table("Resolved configuration", ["setting", "value", "from"], rows)
        console.say(f"Nothing is wrong with it; it would run on {device}.")

    console.emit({"device": device, "config": {k: asdict(s) for k, s in resolved.items()}}, text)


# --- Starting ----------------------------------------------------------------------------------------------------------


@app.meta.default
def _launch(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    config: Path | None = None,
    json: bool = False,
) -> Any:
    """Run a command.

    Parameters
    ----------
    config
        TOML file with values for the command's options; flags override it.
    json
        Print the result as JSON.
    """
    console.json_mode = json
    if config is not None and not config.is_file():
        raise UserError(f"There is no run file {config}.", "Check --config.")
    file = [Toml(config, must_exist=True, use_commands_as_keys=False)] if config else []
    app.config = (*file, note_origins)
    try:
        # Taken here, not by cyclopts: what follows 'check' are another command's flags.
        if tokens[:1] == ("check",) and not {"--help", "-h"} & set(tokens):
            return _check(tokens[1:])
        return app(tokens, exit_on_error=False, print_error=False)
    finally:
        app.config = ()


def main() -> None:
    """Entry point: exit code 0, 2 for a mistake with a hint, 130 for Ctrl-C, 143 when told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unwinds, so that temporary files go
    try:
        app.meta(sys.argv[1:], exit_on_error=False, print_error=False)
    except UserError as error:
        console.fail(error)
        sys.exit(2)
    except CycloptsError as error:
        console.fail(_usage_error(error))
        sys.exit(2)
    except KeyboardInterrupt:
        console.note("Interrupted; nothing half-written was left.")
        sys.exit(130)
    except MemoryError:
        console.fail(UserError("The memory of this machine does not suffice.", "Use a smaller model or window."))
        sys.exit(2)


def _usage_error(error: CycloptsError) -> UserError:
    message = " ".join(str(error).split())
    hint = "Run 'genaccel --help', or add --help to the command."
    if isinstance(error, UnknownOptionError):
        message = message.replace(" Did you mean", "\nDid you mean")
        message, _, suggestion = message.partition("\n")
        hint = suggestion or hint
    return UserError(message, hint)
