"""What the report shows of super-resolution: quality beside bicubic and regression, spectra, pictures, training."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Iterator, Sequence
from typing import Any

from genaccel.compare.identity import workload_of
from genaccel.compare.numbers import known
from genaccel.records import Record
from genaccel.report.drawing import INK, Drawing, style
from genaccel.report.evidence import place_key
from genaccel.report.figures import GRID, canvas, gid, legend, log_scale
from genaccel.report.parts import (
    Anchors,
    Cell,
    Column,
    Gallery,
    Heading,
    Picture,
    Row,
    RowGroup,
    Section,
    Table,
    number_cell,
)
from genaccel.report.training import curves, setting, training_table

METHODS = ("bicubic", "regression", "diffusion")
QUALITY = (
    ("PSNR", "psnr", "{:.2f}", "peak signal over noise of the mean, dB; more is better, and favours blur"),
    ("SSIM", "ssim", "{:.3f}", "structural similarity of the mean; more is better, and favours blur"),
    ("CRPS", "crps", "{:.4f}", "continuous ranked probability score; less is better"),
    (
        "power, mid k",
        "power_mid_k",
        "{:.3g}",
        "mean power over the truth's between 0.125 and 0.25 cycles a pixel; 1 is right",
    ),
    (
        "power, high k",
        "power_high_k",
        "{:.3g}",
        "mean power over the truth's between 0.25 and 0.5 cycles a pixel; 1 is right",
    ),
    ("gradient", "gradient_ratio", "{:.3f}", "mean gradient over the truth's; 1 is right, under it is blurred"),
    ("Wasserstein", "wasserstein", "{:.4f}", "distance of the one-point distributions; less is better"),
    ("flux error", "flux_error", "{:.2%}", "relative error of the mean flux; less is better"),
    ("spread/skill", "spread_skill", "{:.2f}", "spread of the ensemble over its error; 1 is right"),
)
TRAINING = (
    ("images/s", "train_images_per_second", None),
    ("per device", "train_images_per_second_per_device", None),
    ("step, s", "step_seconds", None),
    ("p95, s", "step_seconds_p95", None),
    ("sent a step", "communication_bytes", None),
    ("exposed, s", "exposed_communication_seconds", None),
    ("peak memory", "peak_memory_bytes", None),
    ("first loss", "first_loss", "{:.4f}"),
    ("last loss", "last_loss", "{:.4f}"),
    ("MFU", "mfu", "{:.1%}"),
    ("energy, J", "energy_joules", "{:,.0f}"),
)
SERIES = (("bicubic", "#e69f00", "s"), ("regression", "#009e73", "^"), ("a member", "#0072b2", "o"))
MAX_SHOWN = 3  # judged models with pictures
MAX_PNG = 100_000  # bytes of one picture
TITLES = ("input", "bicubic", "regression", "a member", "mean", "uncertainty", "truth")


def superres_section(records: Sequence[Record], anchors: Anchors, problems: list[str]) -> Section | None:
    """Super-resolution of dust maps; ``records`` are oldest first."""
    judged = [r for r in records if workload_of(r) == "superres judging"]
    trained = [r for r in records if workload_of(r) == "superres"]
    if not judged and not trained:
        return None
    parts: list[Any] = []
    if judged:
        parts += [_quality(judged, anchors), *_evidence(judged[::-1], problems)]
    if trained:
        parts.append(Heading("superres-training", "Training"))
        parts += [training_table("superres-runs", "Super-resolution training runs", trained, TRAINING, anchors)]
        parts += curves(trained)
    notes = (
        "Quality is in standardized brightness, beside bicubic interpolation, which knows nothing, and the model's own regression.",
        "PSNR and SSIM favour blur: read them beside the power ratios and CRPS.",
    )
    return Section("superres", "Super-resolution of dust maps", notes, tuple(parts))


def _quality(judged: Sequence[Record], anchors: Anchors) -> Table:
    groups = []
    for record in judged:
        rows = []
        for method in METHODS:
            cells = [number_cell(record, f"{method}_{name}", form) for _, name, form, _ in QUALITY]
            if not any(c.kind for c in cells):
                continue
            first = [Cell(method), anchors.place_cell(record, place_key(record))]
            age, tags = (record.created, record.id), {"model": record.model, "method": method}
            rows.append(Row((*first, *cells, anchors.record_cell(record)), age, tags, record.label))
        protocols = (known(record, f"{m}_crps") or known(record, f"{m}_psnr") for m in METHODS)
        protocol = next((n.protocol.partition(", ")[2] for n in protocols if n), "")
        trained_on = setting(record, "model")
        about = "; ".join(filter(None, (protocol, f"model in {trained_on}" if trained_on else "")))
        groups.append(RowGroup(record.label, tuple(rows), about))
    columns = (
        Column("method"),
        Column("ran on", look="place"),
        *(Column(t, True, about) for t, _, _, about in QUALITY),
        Column("record"),
    )
    return Table("superres-quality", "Quality of every judged model", columns, tuple(groups), ("model", "method"))


def _evidence(judged: Sequence[Record], problems: list[str]) -> Iterator[Any]:
    """Spectra and pictures of the latest judged records, which are given first."""
    shown = 0
    for record in judged:
        if shown == MAX_SHOWN:
            break
        try:
            found = [*_spectra(record), *_pictures(record)]
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, binascii.Error):
            problems.append(f"The spectra or pictures of record {record.id} have an unknown shape and are left out.")
            continue
        shown += bool(found)
        yield from found


def _spectra(record: Record) -> Iterator[Picture]:
    found = record.details.get("spectra")
    if not found:
        return
    k = [float(x) for x in found["k"]]
    series = {name: [float(x) for x in found[name]] for name, _, _ in SERIES if name in found}
    if not series or any(len(v) != len(k) or not all(map(_positive, v)) for v in series.values()):
        raise ValueError("a spectrum is torn")
    note = "Mean power of the test maps over the truth's at each scale: 1 is right, below it small scales are blurred away."
    yield Picture(f"Power spectrum, {record.label}", record, (note,), draw_spectra(record.label, k, series))


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0


def draw_spectra(name: str, k: Sequence[float], series: dict[str, list[float]]) -> Drawing:
    """Power over the truth's by wavenumber in cycles per pixel, log scale."""
    tips: list[str] = []
    with style():
        figure, axes = canvas(2.8)
        handles = []
        for title, colour, marker in SERIES:
            if title not in series:
                continue
            look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.2}
            handles += axes.plot(k, series[title], label=title, gid=gid(tips), **look)
            tips.append(
                f"{title}: {series[title][0]:.3g} at the largest scale, {series[title][-1]:.3g} at the smallest"
            )
        axes.axhline(1.0, color=INK, alpha=0.6, linewidth=0.8, linestyle="--", zorder=0)
        log_scale(axes, "y")
        axes.set_xlabel("wavenumber, cycles per pixel")
        axes.set_ylabel("power over the truth's")
        axes.grid(**GRID)
        legend(axes, handles)
        return Drawing(figure, f"Power spectra of {name} over the truth's", tuple(tips))


def _pictures(record: Record) -> Iterator[Gallery]:
    """Pictures that are really PNG files of a modest size."""
    for entry in record.details.get("pictures") or ():
        images = []
        for title in TITLES:
            if (text := entry["pictures"].get(title)) is None:
                continue
            data = base64.b64decode(text, validate=True)
            if len(data) > MAX_PNG or not data.startswith(b"\x89PNG\r\n\x1a\n"):
                raise ValueError("no small PNG")
            images.append((title, base64.b64encode(data).decode("ascii")))
        note = "Standardized brightness on the truth's scale; uncertainty is the ensemble's deviation on a scale of its own."
        yield Gallery(f"{entry['map']}, {record.label}", record, tuple(images), (note,))
