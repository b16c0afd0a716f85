"""What this machine and this genaccel have: the rows behind 'genaccel list'."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rows = list[dict[str, Any]]


def inventory(sections: list[str]) -> dict[str, Rows]:
    """Rows of every section asked for, in that order."""
    return {name: SECTIONS[name]() for name in sections}


def _devices() -> Rows:
    from genaccel import devices

    rows = []
    for device in devices.every():
        reason = device.unavailable_reason()
        about = "not available: " + reason if reason else ", ".join(f"{k} {v}" for k, v in device.describe().items())
        rows.append({"device": device.NAME, "what was probed": about})
    return rows


def _models() -> Rows:
    from genaccel.facts import list_shapes
    from genaccel.models import BUILT_IN

    rows: Rows = [{"model": name, "about": about} for name, about in BUILT_IN.items()]
    return [
        *rows,
        {"model": "FOLDER, OWNER/NAME or FILE.gguf", "about": "any decoder LM of transformers with safetensors"},
        *(row for row in list_shapes() if row["model"] not in BUILT_IN),
    ]


def _accelerators() -> Rows:
    from genaccel.facts import list_accelerators

    return [*list_accelerators()]


def _clusters() -> Rows:
    from genaccel.facts import list_clusters

    return [*list_clusters()]


def _texts() -> Rows:
    from genaccel.corpora import TEXTS

    rows: Rows = [{"text": name, "about": about} for name, about in TEXTS.items()]
    return [*rows, {"text": "FILE", "about": "any UTF-8 text file"}]


def _tasks() -> Rows:
    from genaccel.evaluate.questions import TASKS

    return [{"task": name, "about": about} for name, about in TASKS.items()]


def _formats() -> Rows:
    from genaccel.plans import FORMATS

    rows: Rows = []
    for form in FORMATS.values():
        shape = (1024, 4096)
        bits = 8 * form.num_bytes(shape) / (shape[0] * shape[1])
        rows.append(
            {"format": form.name, "bits per weight of a 1024x4096 matrix": f"{bits:.3f}", "about": form.summary}
        )
    return rows


def _metrics() -> Rows:
    from genaccel.quantize.sensitivity import METRICS

    return [{"metric": m.name, "about": m.summary} for m in METRICS.values()]


def _targets() -> Rows:
    from genaccel.hardware import targets

    return [
        {"target": a.name, "high": a.pair.high, "low": a.pair.low, "runtime": a.runtime, "about": a.description}
        for a in targets().values()
    ]


SECTIONS: dict[str, Callable[[], Rows]] = {
    "devices": _devices,
    "models": _models,
    "texts": _texts,
    "tasks": _tasks,
    "formats": _formats,
    "metrics": _metrics,
    "targets": _targets,
    "accelerators": _accelerators,
    "clusters": _clusters,
}
