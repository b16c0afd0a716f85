"""A trained super-resolver against the truth, beside bicubic interpolation and its own regression: figures and pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genaccel.errors import UserError
from genaccel.records import Figure
from genaccel.store import write_bytes
from genaccel.superres import quality
from genaccel.superres.maps import Brightness, DustMap, block_mean, cropped
from genaccel.superres.resolver import Resolver
from genaccel.superres.sampling import Ensemble, super_resolve
from genaccel.superres.showing import spectra_of

METHODS = ("bicubic", "regression", "diffusion")
BANDS = {"mid": (0.125, 0.25), "high": (0.25, 0.5)}
"""Wavenumbers in cycles per high-resolution pixel; at x4 the low-resolution map ends at 0.125."""


@dataclass(frozen=True)
class Judged:
    """One test map: truth, what was seen of it, and what three methods made of it, all in flux."""

    truth: DustMap
    low: DustMap
    bicubic: np.ndarray
    ensemble: Ensemble


def judge_maps(
    resolver: Resolver,
    maps: Sequence[DustMap],
    num_members: int,
    num_steps: int,
    seed: int = 0,
    advance: Callable[[str], None] = lambda _: None,
) -> list[Judged]:
    """Degrade every map by block means and super-resolve it. Maps are cut to a multiple of the factor."""
    factor, found = resolver.info.factor, []
    for number, source in enumerate(maps):
        height, width = (n - n % factor for n in source.shape)
        truth = cropped(source, 0, 0, height, width)
        values, kept = block_mean(truth.values, factor, truth.valid)
        low = DustMap(truth.name, values, kept, truth.unit)
        bright = resolver.info.brightness
        smooth = bright.backward(quality.bicubic(bright.forward(np.where(kept, values, values[kept].mean())), factor))
        ensemble = super_resolve(resolver, low, num_members, num_steps, seed + number)
        found.append(Judged(truth, low, np.asarray(smooth), ensemble))
        advance(truth.name)
    if not found:
        raise UserError("There are no maps to evaluate on.", "Give test maps with --data.")
    return found


def figures_of(judged: Sequence[Judged], brightness: Brightness, protocol: str) -> list[Figure]:
    """Quality of every method, mean over maps, in standardized brightness but for the flux error.

    Power is that of the members over the truth's, both summed over all maps; a map's sample is over the mean map's truth.
    """
    found = []
    whole = {
        f"power_{name}_k": np.mean([quality.band_power(brightness.forward(j.truth.values), *band) for j in judged])
        for name, band in BANDS.items()
    }
    for method in METHODS:
        rows = [_scores(j, method, brightness) for j in judged]
        for name in rows[0]:
            values = [row[name] / float(whole.get(name, 1.0)) for row in rows]
            unit = {"psnr": "dB"}.get(name, "")
            how = f"{method}, mean over {len(rows)} maps, {protocol}"
            found.append(Figure(f"{method}_{name}", float(np.mean(values)), unit, "measured", how, tuple(values)))
    return found


def _scores(judged: Judged, method: str, brightness: Brightness) -> dict[str, float]:
    members = {
        "bicubic": judged.bicubic[None],
        "regression": judged.ensemble.regression[None],
        "diffusion": judged.ensemble.members,
    }[method]
    flux, truth_flux = members.mean(axis=0), judged.truth.values
    bright, truth = brightness.forward(members), brightness.forward(truth_flux)
    one, mean = bright[0], bright.mean(axis=0)
    scores = {
        "psnr": quality.psnr(mean, truth),
        "ssim": quality.ssim(mean, truth),
        "crps": quality.crps(bright, truth),
        "wasserstein": quality.wasserstein(one, truth),
        "gradient_ratio": quality.gradient_ratio(one, truth),
        "flux_error": abs(quality.flux_error(flux, truth_flux)),
    }
    for name, band in BANDS.items():
        scores[f"power_{name}_k"] = float(np.mean([quality.band_power(member, *band) for member in bright]))
    if method == "diffusion" and len(members) > 1:
        scores["spread_skill"] = quality.spread_skill(bright, truth)
    return scores


def write_pictures(path: Path, judged: Sequence[Judged], brightness: Brightness) -> None:
    """A PNG: a row for every map (input, bicubic, regression, two members, mean, uncertainty, truth) and the spectra."""
    import io

    from matplotlib.figure import Figure as Canvas

    titles = ("input", "bicubic", "regression", "member 1", "member 2", "mean", "uncertainty", "truth")
    rows = judged[:4]
    figure = Canvas(figsize=(2 * len(titles), 2.2 * len(rows) + 3.2), layout="constrained")
    grid = figure.add_gridspec(len(rows) + 1, len(titles), height_ratios=[*[1] * len(rows), 1.5])
    for number, one in enumerate(rows):
        members = brightness.forward(one.ensemble.members)
        truth = brightness.forward(one.truth.values)
        planes = (
            brightness.forward(one.low.values),
            brightness.forward(one.bicubic),
            brightness.forward(one.ensemble.regression),
            members[0],
            members[-1],
            members.mean(axis=0),
            members.std(axis=0),
            truth,
        )
        low, high = float(np.nanmin(truth)), float(np.nanmax(truth))
        for column, (title, plane) in enumerate(zip(titles, planes, strict=True)):
            axes = figure.add_subplot(grid[number, column])
            limits: dict[str, Any] = {} if title == "uncertainty" else {"vmin": low, "vmax": high}
            axes.imshow(plane, origin="lower", cmap="viridis" if title == "uncertainty" else "inferno", **limits)
            axes.set_xticks([])
            axes.set_yticks([])
            if number == 0:
                axes.set_title(title, fontsize=9)
            if column == 0:
                axes.set_ylabel(one.truth.name[:22], fontsize=7)
    _spectra(figure.add_subplot(grid[len(rows), :]), judged, brightness)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    write_bytes(path, buffer.getvalue())


def _spectra(axes: Any, judged: Sequence[Judged], brightness: Brightness) -> None:
    """Mean power over the truth's by wavenumber: 1 is right."""
    found = spectra_of(judged, brightness)
    k = found.pop("k")
    for (label, ratios), marker in zip(found.items(), "s^o", strict=True):
        axes.plot(k, ratios, marker=marker, markersize=4, label=label)
    axes.axhline(1.0, color="black", linewidth=0.7, linestyle="--")
    axes.set_yscale("log")
    axes.set_xlabel("wavenumber, cycles per pixel")
    axes.set_ylabel("power / truth's")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.2)
