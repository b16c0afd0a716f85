"""Records as a person sees them in a terminal: one table, and the protocols behind its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from genaccel import console
from genaccel.records import Record


def show_records(records: Sequence[Record], path: Path) -> None:
    """A command's result: its records as a table (or JSON), the last one's warnings, and where it was stored."""

    def text() -> None:
        print_table(records)
        console.say(f"Record: {path}")

    for warning in records[-1].warnings:
        console.warn(warning)
    console.emit([asdict(r) for r in records], text)


def print_table(records: Sequence[Record]) -> None:
    """The summary table of ``records``, then every protocol that its figures were obtained by."""
    from genaccel.report import COLUMNS, summary_row

    rows = [summary_row(record) for record in records]
    console.table("", [c.title for c in COLUMNS], rows, tuple(i for i, c in enumerate(COLUMNS) if c.numeric))
    shown = {"perplexity", "prefill_tokens_per_second", "decode_tokens_per_second"}
    for protocol in dict.fromkeys(f.protocol for r in records for f in r.figures if f.name in shown):
        console.say(f"  {protocol}")
    estimates = [f for r in records for f in r.figures if f.interval and f.name != "perplexity"]
    for record in records if estimates else ():
        _print_estimates(record)
    if any(f.kind == "predicted" for r in records for f in r.figures):
        console.say("  (p) predicted; everything else was measured")


def _print_estimates(record: Record) -> None:
    """Every figure that has a 95 % interval, with its protocol."""
    found = [(f, f.value, f.interval) for f in record.figures if f.value is not None and f.interval is not None]
    rows = [
        [f.name, f"{value:.4f}", "-" if f.stderr is None else f"{f.stderr:.4f}", f"{low:.4f} to {high:.4f}"]
        for f, value, (low, high) in found
    ]
    console.table(record.label, ["figure", "value", "stderr", "95 % interval"], rows, (1, 2, 3))
    protocols: dict[str, list[str]] = {}
    for f, _, _ in found:
        protocols.setdefault(f.protocol + (f"; {f.note}" if f.note else ""), []).append(f.name)
    for protocol, names in protocols.items():
        console.say(f"  {', '.join(names)}: {protocol}")


Show = Callable[[float], str]
SECONDS: Show = lambda v: f"{v:.3f}"  # noqa: E731
TRAINING_COLUMNS: tuple[tuple[str, tuple[str, ...], Show], ...] = (
    ("tokens/s", ("train_tokens_per_second",), lambda v: f"{v:,.0f}"),
    ("step, p95, s", ("step_seconds", "step_seconds_p95"), SECONDS),
    ("forward, backward, update, s", ("forward_seconds", "backward_seconds", "optimizer_seconds"), SECONDS),
    ("sent a step", ("communication_bytes",), console.format_bytes),
    ("sending, exposed, s", ("communication_seconds", "exposed_communication_seconds"), SECONDS),
    ("peak memory", ("peak_memory_bytes",), console.format_bytes),
    ("loss, first, last", ("first_loss", "last_loss"), lambda v: f"{v:.4f}"),
    ("MFU", ("mfu",), lambda v: f"{v:.1%}"),
)


def print_training(records: Sequence[Record]) -> None:
    """Fine-tuning runs side by side, the protocol of their speed, held-out losses and answers."""
    head = ("run", "mode", "attention")
    rows = []
    for record in records:
        cells = [" ".join(_shown(record, name, show) for name in names) for _, names, show in TRAINING_COLUMNS]
        rows.append([record.label, record.mode, str(record.config["attention"].value), *cells])
    titles = [*head, *(title for title, _, _ in TRAINING_COLUMNS)]
    console.table("", titles, rows, tuple(range(len(head), len(titles))))
    speeds = [f for r in records if (f := r.figure("train_tokens_per_second"))]
    for protocol in dict.fromkeys(f.protocol for f in speeds):
        console.say(f"  tok/s: {protocol}")
    console.say("  phases and bytes are medians of one process; everything was measured")
    for record in records:
        before, after = record.figure("held_out_loss_before"), record.figure("held_out_loss_after")
        if after is not None and after.value is not None:
            was = f"{before.value:.4f} -> " if before is not None and before.value is not None else ""
            console.say(f"  {record.label}: held-out loss {was}{after.value:.4f} nats per target")
        answers = record.details.get("answers") or {}
        for when in ("before", "after"):
            if answers.get(when) is not None:
                console.say(f"  answer {when}: {answers[when]}")


def _shown(record: Record, name: str, show: Show) -> str:
    figure = record.figure(name)
    return "-" if figure is None or figure.value is None else show(figure.value)


def print_record(record: Record) -> None:
    """All of a record that a person would ask for: figures, settings by origin, where it ran, what it left."""
    environment = record.environment
    console.say(f"{record.label} ({record.job}, record {record.id}, {record.created})")
    console.say(
        f"ran on {environment.num_devices} x {environment.accelerator or environment.device}, {environment.host_cpu}"
    )
    console.say(
        f"software: {', '.join(f'{n} {v}' for n, v in environment.packages.items())}, {environment.git_commit or 'no commit'}"
    )
    for name, sha256 in record.data.items():
        console.say(f"data: {name}, sha256 {sha256}")
    _figures_table(record)
    rows = [[name, str(s.value), s.origin] for name, s in record.config.items()]
    console.table("Settings", ["setting", "value", "from"], rows)
    for name, place in record.artefacts.items():
        console.say(f"{name}: {place}")
    for warning in record.warnings:
        console.say(f"warning: {warning}")


def _figures_table(record: Record) -> None:
    rows = [[f.name, "-" if f.value is None else f"{f.value:.5g}", f.unit, f.kind, f.protocol] for f in record.figures]
    console.table(record.label, ["figure", "value", "unit", "kind", "protocol"], rows, (1,))


def show_figures(record: Record, path: Path) -> None:
    """A record of any job: every figure with its value and protocol, and where it was stored."""

    def text() -> None:
        _figures_table(record)
        for name, place in record.artefacts.items():
            console.say(f"{name}: {place}")
        console.say(f"Record: {path}")

    for warning in record.warnings:
        console.warn(warning)
    console.emit([asdict(record)], text)


DUST_QUALITY = ("crps", "power_mid_k", "power_high_k", "psnr", "ssim", "spread_skill")
DUST_METHODS = ("bicubic", "regression", "diffusion")


def print_dust(record: Record) -> None:
    """A super-resolver: what it was judged by, method beside method, or how fast it trained."""
    if record.figure("diffusion_crps") is None:
        speed, loss = record.figure("train_images_per_second"), record.figure("last_loss")
        shown = [f"{f.value:.4g} {f.unit}".strip() for f in (speed, loss) if f and f.value is not None]
        console.say(f"{record.label}: {' trained, last loss '.join(shown)} (measured)")
        return
    rows = [
        [method, *(_shown(record, f"{method}_{name}", lambda v: f"{v:.3f}") for name in DUST_QUALITY)]
        for method in DUST_METHODS
        if record.figure(f"{method}_crps") is not None
    ]
    titles = ["", "CRPS", "P(k) mid / truth", "P(k) high / truth", "PSNR, dB", "SSIM", "spread/skill"]
    console.table(record.label, titles, rows, tuple(range(1, len(titles))))
    protocol = next(f.protocol for f in record.figures if f.name == "diffusion_crps")
    console.say(
        f"  {protocol}; measured. PSNR and SSIM favour blur: read them beside CRPS (lower is better) and P(k) (1 is right)"
    )
