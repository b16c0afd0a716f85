"""From scores to a plan file: how many layers keep the higher precision, and what the embedding and head get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from genaccel.errors import UserError
from genaccel.hardware import Accelerator
from genaccel.plans import ModelLayout, PrecisionPlan, SensitivityReport, find_format
from genaccel.quantize.paper import assign_precisions, count_by_share, count_by_two_means

Split = Literal["share", "two-means", "compression"]


@dataclass(frozen=True)
class Allocation:
    """How phase 2 splits the layers: by ``share`` of layers, by two means, or by the ``compression`` to reach."""

    split: Split = "share"
    share: float = 0.5
    compression: float | None = None
    embeddings: str = "high"

    def describe(self) -> str:
        """A phrase for the plan's header."""
        how = {
            "share": f"share {self.share:g}",
            "two-means": "two means",
            "compression": f"compression {self.compression}",
        }
        return f"{how[self.split]}, embeddings {self.embeddings}"


def make_plan(
    report: SensitivityReport, layout: ModelLayout, target: Accelerator, allocation: Allocation
) -> PrecisionPlan:
    """Phase 2 for ``target``'s pair of precisions; with a compression, as many sensitive layers as its bytes allow."""
    if len(report.scores) != layout.num_layers:
        raise UserError(
            f"The sensitivity report has {len(report.scores)} layers, {report.model} has {layout.num_layers}.",
            "Measure the sensitivity of this very model.",
        )
    in_order = sorted(report.scores, key=lambda s: s.layer)
    for index, score in enumerate(in_order):
        if (score.layer, score.name) != (index, layout.layer_name(index)):
            raise UserError(
                f"The sensitivity report scores layer {score.layer} as {score.name}, where the model has "
                f"layer {index}, {layout.layer_name(index)}.",
                "Measure the sensitivity of this very model.",
            )
    scores = [s.score for s in in_order]
    if allocation.split == "share":
        num_high = count_by_share(len(scores), allocation.share)
    elif allocation.split == "two-means":
        num_high = count_by_two_means(scores)
    else:
        num_high = _count_by_compression(scores, layout, target, allocation)
    formats = _formats(scores, num_high, layout, target, allocation.embeddings)
    method = f"{report.metric}: {num_high} of {len(scores)} layers high, {allocation.describe()}"
    return PrecisionPlan(report.model, target.name, method, formats)


def _formats(
    scores: list[float], num_high: int, layout: ModelLayout, target: Accelerator, embeddings: str
) -> dict[str, str]:
    """Plan lines: embedding, layers, untied head."""
    pair = target.pair
    outside = {"high": pair.high, "low": pair.low, "keep": "fp32"}.get(embeddings) or find_format(embeddings).name
    formats = {w.name: outside for w in layout.stored if w.role == "embedding"}
    for layer, form in enumerate(assign_precisions(scores, num_high, pair.high, pair.low)):
        formats[layout.layer_name(layer)] = form
    formats |= {w.name: outside for w in layout.stored if w.role == "head"}
    return formats


def _count_by_compression(scores: list[float], layout: ModelLayout, target: Accelerator, allocation: Allocation) -> int:
    """The most high-precision layers whose real bytes, scales included, stay within fp32 bytes / compression."""
    if allocation.compression is None or allocation.compression <= 0:
        raise UserError("A split by compression needs the compression to reach.", "Add --compression 3.0, for example.")

    def compression(num_high: int) -> float:
        formats = _formats(scores, num_high, layout, target, allocation.embeddings)
        return layout.fp32_bytes / layout.num_bytes(layout.resolve(formats))

    for num_high in range(len(scores), -1, -1):
        if compression(num_high) >= allocation.compression:
            return num_high
    raise UserError(
        f"A compression of {allocation.compression:g} cannot be reached with {target.pair.high}/{target.pair.low}; "
        f"the most is {compression(0):.3f} with every layer in {target.pair.low}.",
        "Ask for less, or let --embeddings low shrink the embedding too."
        if allocation.embeddings != "low"
        else "Ask for less, or choose a target with narrower formats.",
    )
