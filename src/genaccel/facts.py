"""What the catalogue knows about one accelerator, cluster or model: rows with every number's kind and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from genaccel.accelerator import Accelerator
from genaccel.cluster import Cluster
from genaccel.errors import UserError, did_you_mean
from genaccel.hardware import accelerators, clusters, read_accelerator
from genaccel.quantities import Quantity
from genaccel.shapes import ModelShape, model_shapes
from genaccel.unets import UNetShape, unet_shapes

Thing = Accelerator | Cluster | ModelShape | UNetShape


@dataclass(frozen=True)
class Fact:
    """One line: a number as people write it, how it was obtained, as what it was printed where, and remarks."""

    what: str
    value: str
    kind: str = ""
    printed: str = ""
    source: str = ""
    note: str = ""


SCALES = {"FLOP/s": ("TFLOP/s", 1e12), "OP/s": ("TOP/s", 1e12), "B": ("GB", 1e9), "B/s": ("GB/s", 1e9)} | {
    "Hz": ("MHz", 1e6),
    "s": ("us", 1e-6),
    "units": ("", 1.0),
}
WORDS = {
    "memory": "memory",
    "memory_bandwidth": "bandwidth of the memory",
    "host_memory": "memory of the host",
    "cache": "last-level cache",
    "tdp": "power",
    "clock": "clock",
    "matrix_units": "matrix units",
    "vector_units": "vector units",
    "link": "links to other cards, one direction",
    "host_link": "link to the host, one direction",
    "nodes": "nodes",
    "cpus": "processors a node",
    "local_disk": "disk of a node",
    "intra_node": "links inside a node, a card, one direction",
    "inter_node": "links between nodes, a card, one direction",
    "price": "price of a card",
}


def in_units(value: float, unit: str) -> str:
    """A canonical number in the unit that people use: 3.12e14 FLOP/s -> '312 TFLOP/s'."""
    name, scale = SCALES.get(unit, (unit, 1.0))
    smaller = {"TFLOP/s": ("GFLOP/s", 1e9), "TOP/s": ("GOP/s", 1e9), "GB": ("MB", 1e6), "GB/s": ("MB/s", 1e6)}
    if value < scale and name in smaller:
        name, scale = smaller[name]
    return f"{float(f'{value / scale:.4g}'):,g} {name}".strip()


def find(name: str) -> Thing:
    """The accelerator, cluster or model of the catalogue called ``name``, or the accelerator in the file ``name``.

    A model's id on the hub is also a name of it. ``UserError`` offers the nearest.
    """
    if name.endswith(".toml"):
        return read_accelerator(Path(name))
    tables: tuple[Mapping[str, Thing], ...] = (accelerators(), clusters(), model_shapes(), unet_shapes())
    for table in tables:
        if name.lower() in table:
            return table[name.lower()]
    models: list[ModelShape | UNetShape] = [*model_shapes().values(), *unet_shapes().values()]
    for model in models:
        if name.lower() in (i.lower() for i in model.hub_ids):
            return model
    known = [n for table in tables for n in table]
    raise UserError(f"The catalogue has no accelerator, cluster or model '{name}'.", did_you_mean(name, known))


def facts(thing: Thing) -> list[Fact]:
    """Everything that is known about it, and what is not with the reason."""
    if isinstance(thing, ModelShape):
        return _of_model(thing)
    if isinstance(thing, UNetShape):
        return _of_unet(thing)
    rows = [
        Fact(_words(name), in_units(q.value, q.unit), q.kind, q.entered, _source(q), q.note)
        for name, q in thing.figures.items()
    ]
    rows += [Fact(_words(name), "absent", note=reason) for name, reason in thing.absent.items()]
    if isinstance(thing, Cluster):
        own = [Fact("accelerator", thing.accelerator, source=thing.source, note=thing.card.description)]
        own.append(Fact("cards a node", str(thing.cards_per_node), "spec", source=thing.source))
        for what, value in (("processor", thing.cpu), ("scheduler", thing.scheduler), ("topology", thing.topology)):
            own += [Fact(what, value, "spec", source=thing.source)] if value else []
        return own + rows
    return rows


def document(thing: Thing) -> dict[str, Any]:
    """The same for a program: plain numbers in canonical units, and the provenance of each."""
    content = asdict(thing)
    content.pop("card", None)
    if isinstance(thing, ModelShape | UNetShape):
        content["num_parameters"] = thing.num_parameters
    if isinstance(thing, ModelShape):
        content["num_active_parameters"] = thing.num_active_parameters
    kinds = {Accelerator: "accelerator", Cluster: "cluster", ModelShape: "model", UNetShape: "unet"}
    return {"is": kinds[type(thing)]} | content


def title(thing: Thing) -> str:
    """A line above its facts."""
    if isinstance(thing, ModelShape | UNetShape):
        return thing.name
    return f"{thing.name}: {thing.description}"


def _words(name: str) -> str:
    if name.startswith("peak_flops."):
        return f"dense peak in {name.removeprefix('peak_flops.')}"
    if name.startswith("measured."):
        return "measured " + name.removeprefix("measured.").replace("_", " ")
    return WORDS[name]


def _source(q: Quantity) -> str:
    return f"{q.source} ({q.date})"


def _of_model(shape: ModelShape) -> list[Fact]:
    derived = "computed from the sizes below"
    rows = [Fact("parameters", f"{shape.num_parameters:,}", "derived", source=derived)]
    if shape.num_experts > 1:
        rows.append(
            Fact("parameters that a token goes through", f"{shape.num_active_parameters:,}", "derived", source=derived)
        )
        rows.append(
            Fact("experts", f"{shape.num_experts}, {shape.experts_per_token} a token", "spec", source=shape.source)
        )
    mlp = "gated, three matrices" if shape.gated_mlp else "two matrices"
    biases = [
        w
        for w, yes in (
            ("queries, keys and values", shape.qkv_bias),
            ("output", shape.output_bias),
            ("MLP", shape.mlp_bias),
            ("norms", shape.norm_bias),
        )
        if yes
    ]
    sizes = {
        "layers": f"{shape.num_layers}",
        "hidden size": f"{shape.hidden_size:,}",
        "MLP": f"{shape.intermediate_size:,}, {mlp}",
        "heads": f"{shape.num_heads} of {shape.head_dim}, {shape.num_kv_heads} for keys and values",
        "vocabulary": f"{shape.vocab_size:,}, {'shared with the head' if shape.tied_embeddings else 'with a head of its own'}",
        "context": f"{shape.context:,} tokens" if shape.context else "",
        "sliding window": f"{shape.sliding_window:,} tokens in {shape.sliding_share:.0%} of the layers"
        if shape.sliding_window
        else "",
        "biases": ", ".join(biases),
        "learned positions": f"{shape.learned_positions:,}" if shape.learned_positions else "",
        "on the hub": ", ".join(shape.hub_ids),
    }
    return rows + [Fact(what, value, "spec", source=shape.source) for what, value in sizes.items() if value]


def _of_unet(shape: UNetShape) -> list[Fact]:
    depths = ", ".join(map(str, shape.depths))
    sizes = {
        "family": shape.family,
        "channels by level": ", ".join(map(str, shape.channels)),
        "residual blocks a level": str(shape.blocks),
        "transformer blocks by level": f"{depths}; {shape.middle_depth} in the middle" if depths else "",
        "width of the text": f"{shape.text_width:,}" if shape.text_width else "",
        "inputs and outputs": f"{shape.inputs} and {shape.outputs} channels of {shape.size}x{shape.size}",
        "on the hub": ", ".join(shape.hub_ids),
    }
    first = Fact("parameters", f"{shape.num_parameters:,}", "derived", source="computed from the sizes below")
    return [first] + [Fact(what, value, "spec", source=shape.source) for what, value in sizes.items() if value]


# --- Lists --------------------------------------------------------------------------------------------------------------


def list_accelerators() -> list[dict[str, str]]:
    """A row for each accelerator; kinds other than spec are named."""

    def cell(card: Accelerator, name: str) -> str:
        q = card.figures.get(name)
        return "-" if q is None else in_units(q.value, q.unit).rsplit(" ", 1)[0]

    columns = {"memory GB": "memory", "memory GB/s": "memory_bandwidth"}
    columns |= {f"{d} T/s": f"peak_flops.{d}" for d in ("fp32", "bf16", "fp16", "fp8", "int8")}
    columns |= {"links GB/s": "link", "power W": "tdp"}
    rows = []
    for card in accelerators().values():
        shown = [card.figures[name] for name in columns.values() if name in card.figures]
        rows.append(
            {"accelerator": card.name}
            | {column: cell(card, name) for column, name in columns.items()}
            | {"kinds": _kinds(columns.values(), card.figures), "sources": _sources(shown), "about": card.description}
        )
    return rows


def list_clusters() -> list[dict[str, str]]:
    """A row for each cluster."""

    def cell(cluster: Cluster, name: str) -> str:
        q = cluster.figures.get(name)
        return "-" if q is None else in_units(q.value, q.unit).split(" ", 1)[0]

    columns = {"nodes": "nodes", "inside GB/s": "intra_node", "outside GB/s": "inter_node"}
    columns |= {"host memory GB": "host_memory", "USD a card-hour": "price"}
    rows = []
    for cluster in clusters().values():
        shown = [cluster.figures[name] for name in columns.values() if name in cluster.figures]
        rows.append(
            {"cluster": cluster.name, "cards a node": f"{cluster.cards_per_node} x {cluster.accelerator}"}
            | {column: cell(cluster, name) for column, name in columns.items()}
            | {"scheduler": cluster.scheduler or "-", "kinds": _kinds(columns.values(), cluster.figures)}
            | {"sources": _sources(shown), "about": cluster.description}
        )
    return rows


def list_shapes() -> list[dict[str, str]]:
    """A row for each model whose shape is known, without any weights."""
    rows = [
        {"model": s.name, "about": f"{_billions(s.num_parameters)} parameters{_active(s)}, shape only; {s.source}"}
        for s in model_shapes().values()
    ]
    unets = [
        {"model": s.name, "about": f"UNet, {_billions(s.num_parameters)} parameters, shape only; {s.source}"}
        for s in unet_shapes().values()
    ]
    return rows + unets


def _billions(count: int) -> str:
    return f"{count / 1e9:.3g}B" if count >= 1e9 else f"{count / 1e6:.3g}M"


def _active(shape: ModelShape) -> str:
    return f" ({_billions(shape.num_active_parameters)} a token)" if shape.num_experts > 1 else ""


def _kinds(names: Any, figures: Mapping[str, Quantity]) -> str:
    """'spec', or which of the figures shown are of another kind."""
    other: dict[str, list[str]] = {}
    for name in names:
        if name in figures and figures[name].kind != "spec":
            other.setdefault(figures[name].kind, []).append(name.removeprefix("peak_flops.").replace("_", " "))
    if not any(name in figures for name in names):
        return "-"
    return "; ".join(["spec", *(f"{kind}: {', '.join(which)}" for kind, which in other.items())])


def _sources(shown: list[Quantity]) -> str:
    """The source of most of the figures shown, and of how many there are more."""
    titles = [q.source for q in shown]
    if not titles:
        return "-"
    most = max(titles, key=titles.count).partition(",")[0].partition("@")[0]
    others = len(set(titles)) - 1
    return f"{most} and {others} more" if others else most
