"""Which precision to serve a model in: predicted speed and size of every mixture, and what is measured about its quality.

How much worse a quantized model answers cannot be predicted from shapes. It is taken from records of this model; a mixture
without one is listed as unmeasured, with the command that measures it, and is not recommended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from genaccel.compare.identity import fields_of
from genaccel.errors import UserError
from genaccel.hardware import find_target
from genaccel.predict.generating import Generating, predict_generating
from genaccel.predict.prediction import Prediction
from genaccel.predict.serving import FORMATS
from genaccel.records import Figure, Record
from genaccel.shapes import find_shape

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the weights in the higher precision that are considered without a record."""
SERVED = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "int8": "int8-weights", "int4": "int4-weights"}
"""Formats of plans as the time model of serving has them; those not here keep their name."""


@dataclass(frozen=True)
class Mixture:
    """One way to store the weights. ``increase`` of the perplexity against FP32 is None where nothing was measured."""

    formats: tuple[tuple[str, float], ...]
    prediction: Prediction
    compression: float
    increase: float | None
    evidence: str

    @property
    def name(self) -> str:
        """'50% fp16 + 50% int8'."""
        return " + ".join(f"{share:.0%} {name}" for name, share in self.formats)


@dataclass(frozen=True)
class QuantizeAdvice:
    """``allowed`` are within the limit, fastest first; ``refused`` are beyond it; ``unmeasured`` have no record.

    ``left_out`` says of records of this model and target why they are no evidence.
    """

    allowed: tuple[Mixture, ...]
    refused: tuple[Mixture, ...]
    unmeasured: tuple[Mixture, ...]
    left_out: tuple[str, ...] = ()


def percent(text: str) -> float:
    """'1%' or '0.01' as a share."""
    try:
        found = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise UserError(f"The limit '{text}' is not a share.", "Write 1% or 0.01.") from None
    if found < 0:
        raise UserError(f"The limit '{text}' is below zero.", "Write 1% or 0.01.")
    return found


def advise_quantization(model: str, on: str, limit: float, records: Sequence[Record], batch: int = 1) -> QuantizeAdvice:
    """Mixtures of the target's pair of precisions, with what records say about their perplexity."""
    pair = find_target(on).pair
    measured, left_out = list[Mixture](), list[str]()
    for record in records:
        if not _is_of(record, model) or record.target != on or record.mode not in ("fake", "real"):
            continue
        try:
            measured.append(_measured(model, on, record, records, batch))
        except UserError as error:
            left_out.append(f"record {record.id}: {error.message}")
    known = {mixture.name for mixture in measured}
    guesses = [_mixture(model, on, ((pair.high, s), (pair.low, 1 - s)), batch, None, "") for s in SHARES]
    unmeasured = [m for m in guesses if m.name not in known]

    def speed(mixture: Mixture) -> float:
        return mixture.prediction.seconds

    allowed = sorted((m for m in measured if m.increase is not None and m.increase <= limit), key=speed)
    refused = sorted((m for m in measured if m.increase is not None and m.increase > limit), key=speed)
    return QuantizeAdvice(tuple(allowed), tuple(refused), tuple(sorted(unmeasured, key=speed)), tuple(left_out))


def _mixture(
    model: str, on: str, formats: tuple[tuple[str, float], ...], batch: int, increase: float | None, evidence: str
) -> Mixture:
    present = tuple((name, share) for name, share in formats if share > 0)
    served = tuple((SERVED.get(name, name), share) for name, share in present)
    prediction = predict_generating(Generating(model, on, 1, batch, 512, 128, weights=served))
    width = sum(FORMATS[name].bytes_per_weight * share for name, share in served)
    return Mixture(present, prediction, 4 / width, increase, evidence)


def _is_of(record: Record, model: str) -> bool:
    """Whether a record is of the catalogue's ``model``, whichever of its names it was given."""
    try:
        return find_shape(record.model).name == find_shape(model).name
    except UserError:
        return record.model == model


def _measured(model: str, on: str, record: Record, records: Sequence[Record], batch: int) -> Mixture:
    """The mixture of a record, with its perplexity against the FP32 record of the same weights, text and protocol.

    ``UserError`` says why the record tells nothing.
    """
    formats = _shares(record)
    unknown = [name for name, _ in formats if SERVED.get(name, name) not in FORMATS]
    if unknown or not formats:
        raise UserError(f"how fast {unknown[0]} is served is not known." if unknown else "it has no formats.", "")
    perplexity = record.figure("perplexity")
    if perplexity is None or not perplexity.value:
        raise UserError("it was not judged by perplexity.", "")
    basis = _judged_on(record, perplexity)
    for other in records:
        reference = other.figure("perplexity") if other.mode == "fp32" else None
        if reference is not None and reference.value and _judged_on(other, reference) == basis:
            increase = perplexity.value / reference.value - 1
            return _mixture(model, on, formats, batch, increase, f"record {record.id} against {other.id}")
    raise UserError("no FP32 record has the same weights, text and protocol.", "")


def _judged_on(record: Record, perplexity: Figure) -> tuple[str, ...]:
    """What two perplexities must share to be compared, by the fields that 'genaccel compare' goes by."""
    fields = fields_of(record, perplexity)
    return tuple(fields[name] for name in ("weights", "data", "protocol"))


def _shares(record: Record) -> tuple[tuple[str, float], ...]:
    """(format, share of the weights) of a record's plan."""
    counts: dict[str, int] = {}
    for _, _, name, elements in record.details.get("layer_formats", []):
        counts[name.split("_g")[0]] = counts.get(name.split("_g")[0], 0) + int(elements)
    total = sum(counts.values()) or 1
    return tuple((name, count / total) for name, count in sorted(counts.items(), key=lambda item: -item[1]))
