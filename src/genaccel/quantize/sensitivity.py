"""Sensitivity metrics by name; each turns a model (and texts) into a ``SensitivityReport`` file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genaccel import console, models
from genaccel.corpora import load_corpus
from genaccel.models import ModelSource
from genaccel.plans import LayerScore, ModelLayout, SensitivityReport
from genaccel.quantize import paper
from genaccel.weights import Weights

if TYPE_CHECKING:
    from genaccel.devices import Device


@dataclass(frozen=True)
class SensitivitySettings:
    """What a metric may need: the pruned share, and for those that look at data the text and how much of it."""

    pruned_share: float = paper.PRUNED_SHARE
    text: str = "pydoc"
    data_dir: Path | None = None
    num_windows: int = 4
    window: int = 512


@dataclass(frozen=True)
class Metric:
    """A named way to score layers."""

    name: str
    summary: str
    measure: Callable[[ModelSource, ModelLayout, Weights, SensitivitySettings, Device], SensitivityReport]


def _layer_weights(layout: ModelLayout, layer: int) -> list[str]:
    return [f"{w.name}.weight" for w in layout.weights if w.layer == layer]


def _magnitude(
    source: ModelSource, layout: ModelLayout, weights: Weights, settings: SensitivitySettings, device: Device
) -> SensitivityReport:
    def layer(index: int) -> paper.Layer:
        return lambda: ((name, weights.get(name)) for name in _layer_weights(layout, index))

    result = paper.scores_by_magnitude([layer(i) for i in range(layout.num_layers)], settings.pruned_share)
    used = {"pruned_share": settings.pruned_share, "threshold": result.tau}
    return _report(source, layout, "magnitude", result.scores, used)


def _pruning(
    source: ModelSource, layout: ModelLayout, weights: Weights, settings: SensitivitySettings, device: Device
) -> SensitivityReport:
    from genaccel.evaluate.perplexity import WindowProtocol, score_windows, tokenize_windows

    corpus = load_corpus(settings.text, "calibration", settings.data_dir)
    loaded = models.load(source)
    loaded.model.to(device.torch_device())
    window = min(settings.window, loaded.max_positions or settings.window)
    protocol = WindowProtocol(window, window, settings.num_windows)
    windows = tokenize_windows(loaded, corpus, protocol)

    def loss() -> float:
        return score_windows(loaded, windows).mean_nll

    parameters = [
        [(f"{w.name}.weight", loaded.model.get_submodule(w.name).weight) for w in layout.weights if w.layer == index]
        for index in range(layout.num_layers)
    ]
    with console.progress("Pruning one layer at a time", layout.num_layers) as advance:
        intact, increases = paper.scores_by_pruning_one_layer(
            parameters, loss, settings.pruned_share, lambda: advance("")
        )
    used = {
        "pruned_share": settings.pruned_share,
        "text": corpus.name,
        "text_sha256": corpus.sha256,
        "num_windows": len(windows.items),
        "window": window,
        "intact_loss": intact,
    }
    return _report(source, layout, "pruned_loss", increases, used)


def _report(
    source: ModelSource, layout: ModelLayout, metric: str, scores: tuple[float, ...], used: Mapping[str, object]
) -> SensitivityReport:
    counts = [sum(w.num_elements for w in layout.weights if w.layer == i) for i in range(layout.num_layers)]
    rows = tuple(LayerScore(i, layout.layer_name(i), score, counts[i]) for i, score in enumerate(scores))
    return SensitivityReport(source.name, metric, rows, dict(used))


METRICS = {
    m.name: m
    for m in (
        Metric(
            "magnitude", "the study's: share of a layer's weights above one threshold common to all layers", _magnitude
        ),
        Metric("pruned_loss", "CPTQuant's: rise of the loss when 30 % of one layer's weights are zeroed", _pruning),
    )
}


def measure_sensitivity(
    source: ModelSource,
    layout: ModelLayout,
    weights: Weights,
    metric: str,
    device: Device,
    settings: SensitivitySettings | None = None,
) -> SensitivityReport:
    """Phase 1 with the metric called ``metric``."""
    from genaccel.errors import unknown

    if metric not in METRICS:
        raise unknown("sensitivity metric", metric, METRICS)
    return METRICS[metric].measure(source, layout, weights, settings or SensitivitySettings(), device)
