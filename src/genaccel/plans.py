"""What is decided before a weight is touched: number formats with their exact size, sensitivity, precision plans.

A plan is a TOML file made to be read and edited. Its keys are module names or prefixes of them, and the longest
prefix wins, so that a whole decoder layer is one line and a single projection can be set apart with another.
Nothing here needs torch: a laptop can price a plan for a model it could never load.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from genaccel.errors import UserError, did_you_mean, unknown
from genaccel.store import write_text

T = TypeVar("T")

PLAN_SCHEMA = 1
SENSITIVITY_SCHEMA = 1


@dataclass(frozen=True)
class Format:
    """A number format, granularity of its scales included, as it lies on disk and in memory.

    ``scope`` says what shares one scale: nothing (plain floats), an output channel, or a group of ``group_size``
    consecutive inputs of one output channel. ``offset`` adds a stored minimum beside each scale (asymmetric).
    """

    name: str
    bits: int
    kind: Literal["float", "scaled_float", "integer"]
    scope: Literal["none", "channel", "group"] = "none"
    group_size: int = 0
    offset: bool = False
    scale_bytes: int = 0
    summary: str = ""

    def num_scales(self, shape: Sequence[int]) -> int:
        """Number of scales for a weight of ``shape`` (outputs, inputs)."""
        rows, columns = shape
        if self.scope == "none":
            return 0
        if self.scope == "channel":
            return rows
        return rows * (columns // self.group_size)

    def num_bytes(self, shape: Sequence[int]) -> int:
        """Exact bytes of a weight of ``shape`` (outputs, inputs): elements, scales and minima."""
        per_scale = self.scale_bytes * (2 if self.offset else 1)
        return math.prod(shape) * self.bits // 8 + self.num_scales(shape) * per_scale

    def check_shape(self, name: str, shape: Sequence[int]) -> None:
        """Raise ``UserError`` when a weight of ``shape`` cannot be stored in this format."""
        if self.scope == "group" and shape[1] % self.group_size:
            raise UserError(
                f"Format {self.name} needs a multiple of {self.group_size} inputs, but {name} has {shape[1]}.",
                "Give that module another format in the plan, or choose a group size that divides its inputs.",
            )


def _int4(group_size: int) -> Format:
    return Format(
        f"int4_g{group_size}", 4, "integer", "group", group_size, offset=True, scale_bytes=2,
        summary=f"16 levels, fp16 scale and minimum per group of {group_size} inputs",
    )  # fmt: skip


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("fp32", 32, "float", summary="IEEE single precision"),
        Format("bf16", 16, "float", summary="bfloat16"),
        Format("fp16", 16, "float", summary="IEEE half precision"),
        Format("int8", 8, "integer", "channel", scale_bytes=4, summary="symmetric, fp32 scale per output channel"),
        Format(
            "fp8_e4m3", 8, "scaled_float", "channel", scale_bytes=4, summary="e4m3fn, fp32 scale per output channel"
        ),
        Format("fp8_e5m2", 8, "scaled_float", "channel", scale_bytes=4, summary="e5m2, fp32 scale per output channel"),
        _int4(32),
        _int4(64),
        _int4(128),
    )
}


def find_format(name: str) -> Format:
    """The format called ``name``, or a ``UserError`` that offers the nearest."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    return FORMATS[name]


@dataclass(frozen=True)
class WeightInfo:
    """One weight matrix that can be given a format.

    ``layer`` is the index of its decoder layer, or None for the embedding and the head; ``shape`` is (outputs,
    inputs), whatever the order it is stored in; ``tied_to`` names the module whose tensor it shares.
    """

    name: str
    shape: tuple[int, int]
    layer: int | None
    role: Literal["linear", "embedding", "head"]
    tied_to: str | None = None
    transposed: bool = False

    @property
    def num_elements(self) -> int:
        """Number of weights in the matrix."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ModelLayout:
    """The weight matrices of a model in order, and the bytes of everything else (norms, biases) in fp32."""

    layer_prefix: str
    num_layers: int
    weights: tuple[WeightInfo, ...]
    other_elements: int
    max_positions: int | None = None

    @property
    def stored(self) -> tuple[WeightInfo, ...]:
        """The weights that own their tensor; a tied head is stored with its embedding."""
        return tuple(w for w in self.weights if w.tied_to is None)

    @property
    def fp32_bytes(self) -> int:
        """Bytes of all tensors in fp32, tied tensors once."""
        return 4 * (sum(w.num_elements for w in self.stored) + self.other_elements)

    def layer_name(self, index: int) -> str:
        """Name of decoder layer ``index``, e.g. ``model.layers.3``."""
        return f"{self.layer_prefix}.{index}"

    def resolve(self, formats: Mapping[str, str]) -> dict[str, Format]:
        """The format of every weight from a plan's prefixes; every key must match, every weight must be covered.

        A tied head needs no entry; if it has one it must agree with the embedding's.
        """
        for key in formats:
            if not any(w.name == key or w.name.startswith(key + ".") for w in self.weights):
                names = {p for w in self.weights for p in (w.name, w.name.rsplit(".", 1)[0])}
                names |= {self.layer_name(i) for i in range(self.num_layers)}
                raise UserError(f"The plan names '{key}', which this model does not have.", did_you_mean(key, names))
        result: dict[str, Format] = {}
        for weight in self.weights:
            keys = [k for k in formats if weight.name == k or weight.name.startswith(k + ".")]
            if keys:
                result[weight.name] = find_format(formats[max(keys, key=len)])
            elif weight.tied_to is None:
                raise UserError(
                    f"The plan leaves out {weight.name}.",
                    f'Add a line such as "{weight.name}" = "bf16", or one for a prefix of it.',
                )
        for weight in self.weights:
            if weight.tied_to is not None:
                owner = result[weight.tied_to]
                if result.setdefault(weight.name, owner) != owner:
                    raise UserError(
                        f"The plan gives {weight.name} and {weight.tied_to} different formats, but they share one tensor.",
                        f"Remove the line for {weight.name}.",
                    )
        for weight in self.stored:
            result[weight.name].check_shape(weight.name, weight.shape)
        return result

    def num_bytes(self, formats: Mapping[str, Format]) -> int:
        """Exact tensor bytes of the model under resolved ``formats``; norms and biases stay in fp32."""
        return sum(formats[w.name].num_bytes(w.shape) for w in self.stored) + 4 * self.other_elements


@dataclass(frozen=True)
class LayerScore:
    """Sensitivity of one decoder layer: higher means that it should keep more bits."""

    layer: int
    name: str
    score: float
    num_weights: int


@dataclass(frozen=True)
class SensitivityReport:
    """Phase 1's result for one model. ``settings`` holds what the metric was run with (share, threshold, texts)."""

    model: str
    metric: str
    scores: tuple[LayerScore, ...]
    settings: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SENSITIVITY_SCHEMA

    def ranked(self) -> tuple[LayerScore, ...]:
        """Layers from the most to the least sensitive; equal scores keep the layers' order."""
        return tuple(sorted(self.scores, key=lambda s: (-s.score, s.layer)))

    def save(self, path: Path) -> None:
        """Write the report as JSON, whole or not at all."""
        write_text(path, json.dumps(asdict(self), indent=1, allow_nan=False) + "\n")


@dataclass(frozen=True)
class PrecisionPlan:
    """Phase 2's result: which module gets which format, for which model and target, and by which rule."""

    model: str
    target: str
    method: str
    formats: dict[str, str]
    schema_version: int = PLAN_SCHEMA

    def save(self, path: Path) -> None:
        """Write the plan as TOML, whole or not at all."""
        write_text(path, self.to_toml())

    def to_toml(self) -> str:
        """The plan's file: a header and one line per module or prefix ."""
        head = {
            "schema_version": self.schema_version,
            "model": self.model,
            "target": self.target,
            "method": self.method,
        }
        lines = [f"{key} = {_toml(value)}" for key, value in head.items()]
        lines += ["", "# module or prefix = format; the longest prefix wins, every weight must be covered", "[formats]"]
        lines += [f"{_toml(key)} = {_toml(value)}" for key, value in self.formats.items()]
        return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    """A TOML literal: JSON's, except that TOML wants DEL escaped too."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def load_plan(path: Path) -> PrecisionPlan:
    """Read a plan file; ``UserError`` says what is wrong with it."""
    try:
        data = tomllib.loads(_read(path, "plan"))
    except tomllib.TOMLDecodeError as error:
        raise UserError(
            f"The plan {path} is not TOML: {error}.", "Compare with a file written by 'genaccel plan'."
        ) from None
    _refuse_unquoted_names(data.get("formats"), path)
    return _structure(PrecisionPlan, data, path, "plan", PLAN_SCHEMA)


def _refuse_unquoted_names(formats: Any, path: Path) -> None:
    """TOML reads ``model.layers.0 = "int8"`` as a table in a table in a table; it is the likeliest slip of an editor."""
    for key, value in formats.items() if isinstance(formats, dict) else ():
        if isinstance(value, dict):
            name = key
            while isinstance(value, dict) and value:
                inner, value = next(iter(value.items()))
                name += f".{inner}"
            raise UserError(
                f"The plan {path}: key '{key}' holds a table instead of a format.",
                f'Names with dots need quotes: "{name}" = ...',
            )


def load_sensitivity(path: Path) -> SensitivityReport:
    """Read a sensitivity report; ``UserError`` says what is wrong with it."""
    try:
        data = json.loads(_read(path, "sensitivity report"))
    except ValueError as error:
        raise UserError(
            f"The sensitivity report {path} is not JSON: {error}.", "Write it anew with 'genaccel sensitivity'."
        ) from None
    return _structure(SensitivityReport, data, path, "sensitivity report", SENSITIVITY_SCHEMA)


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"The {what} {path} cannot be read: {reason}.", "Check the path.") from None


def _structure(cls: type[T], data: Any, path: Path, what: str, schema: int) -> T:
    """Strict mapping -> dataclass: unknown keys, missing keys and wrong types are errors."""
    from genaccel.records import structure_strictly

    if not isinstance(data, dict):
        raise UserError(
            f"The {what} {path} does not hold a table.", f"Compare with a file written by 'genaccel {what.split()[0]}'."
        )
    if data.get("schema_version") != schema:
        raise UserError(
            f"The {what} {path} has schema version {data.get('schema_version')}, this genaccel reads {schema}.",
            "Write it anew with this version.",
        )
    return structure_strictly(cls, data, f"The {what} {path}")
