"""What a record keeps of judged maps for whoever reads it later: power spectra, and small pictures of two maps."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genaccel.superres import quality
from genaccel.superres.maps import Brightness

if TYPE_CHECKING:
    from genaccel.superres.evaluation import Judged

PICTURED = 2  # maps
SIDE = 96  # pixels of a picture at most: a larger map is cut around its middle, never shrunk, so that small scales show
SERIES: dict[str, Callable[[Judged], np.ndarray]] = {
    "bicubic": lambda judged: judged.bicubic,
    "regression": lambda judged: judged.ensemble.regression,
    "a member": lambda judged: np.asarray(judged.ensemble.members[0]),
}


def spectra_of(judged: Sequence[Judged], brightness: Brightness) -> dict[str, list[float]]:
    """Mean power over the truth's (1 is right) by wavenumber ``k`` in cycles per pixel, of the maps of one size."""
    same = [one for one in judged if one.truth.shape == judged[0].truth.shape]

    def mean_power(pick: Callable[[Judged], np.ndarray]) -> np.ndarray:
        return np.asarray(np.mean([quality.power_spectrum(brightness.forward(pick(one)))[1] for one in same], axis=0))

    k, _ = quality.power_spectrum(same[0].truth.values)
    truth = mean_power(lambda one: one.truth.values)
    ratios = {name: mean_power(pick) / truth for name, pick in SERIES.items()}
    return {name: [float(x) for x in values] for name, values in ({"k": k} | ratios).items()}


def pictures_of(judged: Sequence[Judged], brightness: Brightness) -> list[dict[str, Any]]:
    """For the first maps: name and, by title, PNG files in base64. All but the uncertainty share the truth's scale."""
    found = []
    for one in judged[:PICTURED]:
        members, truth = brightness.forward(one.ensemble.members), brightness.forward(one.truth.values)
        factor = truth.shape[0] // one.low.shape[0]
        low = np.kron(brightness.forward(one.low.values), np.ones((factor, factor)))  # as large as the others
        planes = {
            "input": low,
            "bicubic": brightness.forward(one.bicubic),
            "regression": brightness.forward(one.ensemble.regression),
            "a member": members[0],
            "mean": members.mean(axis=0),
            "truth": truth,
        }
        scale = float(np.nanmin(truth)), float(np.nanmax(truth))
        pictures = {title: _png(plane, "inferno", *scale) for title, plane in planes.items()}
        if len(members) > 1:
            deviation = members.std(axis=0)
            pictures["uncertainty"] = _png(deviation, "viridis", 0.0, float(np.nanmax(deviation)))
        found.append({"map": one.truth.name, "pictures": pictures})
    return found


def _png(values: np.ndarray, colours: str, low: float, high: float) -> str:
    """One pixel of the map is one of the picture, north up; base64 of a PNG with 256 colours."""
    from matplotlib import colormaps
    from PIL import Image

    top, left = (max(0, (n - SIDE) // 2) for n in values.shape)
    cut = values[top : top + SIDE, left : left + SIDE][::-1]
    scaled = np.nan_to_num((cut - low) / ((high - low) or 1.0), nan=0.0)
    picture = Image.fromarray(np.clip(scaled * 255, 0, 255).round().astype(np.uint8)).convert("P")
    picture.putpalette((colormaps[colours](np.arange(256))[:, :3] * 255).round().astype(np.uint8).tobytes())
    buffer = io.BytesIO()
    picture.save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")
