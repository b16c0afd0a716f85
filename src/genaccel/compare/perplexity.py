"""How a perplexity changed against FP32.

Perplexities are comparable inside a *group*: one model, one protocol, one text. Across groups nothing is subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from genaccel.compare.numbers import known
from genaccel.evaluate.intervals import Z95, ratio
from genaccel.records import Kind, Record

MODES = ("fp32", "fake", "real")


@dataclass(frozen=True)
class Group:
    """Records that may be compared, FP32 first. ``protocol`` and ``text_sha256`` are '' for those not judged."""

    model: str
    protocol: str
    text_sha256: str
    records: tuple[Record, ...]

    def reference(self, record: Record) -> Record | None:
        """The FP32 record to compare ``record`` with: the same weights, the same environment first, then the latest."""
        weights = record.details.get("model_fingerprint")
        key = repr((weights, record.environment))
        if key not in self._references:
            latest = found = None
            for other in self._fp32_latest_first:
                if weights and other.details.get("model_fingerprint", weights) != weights:
                    continue
                if other.environment == record.environment:
                    found = other
                    break
                latest = latest or other
            self._references[key] = found or latest
        return self._references[key]

    @cached_property
    def _references(self) -> dict[str, Record | None]:
        return {}

    @cached_property
    def _fp32_latest_first(self) -> list[Record]:
        judged = [r for r in self.records if r.mode == "fp32" and known(r, "perplexity")]
        return sorted(judged, key=lambda r: (r.created, r.id), reverse=True)


@dataclass(frozen=True)
class Change:
    """A perplexity less its FP32 reference's; ``share`` is the change over the reference's value.

    ``margin`` is half of its 95 % interval over the text's windows, None when unknown.
    """

    value: float
    share: float
    margin: float | None
    kind: Kind
    reference: Record


def group_records(records: Iterable[Record]) -> list[Group]:
    """Groups by model, perplexity protocol and text; in each FP32, fake, real, then by target and age."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        perplexity = known(record, "perplexity")
        text = record.details.get("text")
        sha256 = str(text.get("sha256", "")) if perplexity and isinstance(text, dict) else ""
        groups.setdefault((record.model, perplexity.protocol if perplexity else "", sha256), []).append(record)

    def order(record: Record) -> tuple[int, str, str, str, str]:
        rank = MODES.index(record.mode) if record.mode in MODES else len(MODES)
        return rank, record.mode, record.target, record.created, record.id

    # Those that were not judged come last among a model's groups.
    keys = sorted(groups, key=lambda k: (k[0], not k[1], k))
    return [Group(*key, tuple(sorted(groups[key], key=order))) for key in keys]


def perplexity_change(record: Record, reference: Record | None) -> Change | None:
    """The change against ``reference``, or None when there is no reference or either perplexity is unknown.

    Raises ``ValueError`` when the two were judged by different protocols.
    """
    figure, base = known(record, "perplexity"), known(reference, "perplexity") if reference else None
    if figure is None or base is None or reference is None or base.value <= 0:
        return None
    if figure.protocol != base.protocol:
        raise ValueError(f"perplexities of unlike protocols: {figure.protocol!r} and {base.protocol!r}")
    # A difference is measured only when both sides are.
    kind = base.kind if figure.kind == "measured" else figure.kind
    change = figure.value - base.value
    error = _paired_error(record.details, reference.details)
    margin = None if error is None else figure.value * Z95 * error
    return Change(change, change / base.value, margin, kind, reference)


def _paired_error(details: Mapping[str, Any], base: Mapping[str, Any]) -> float | None:
    """Standard error of the difference in mean negative log-likelihood (nats per token), from windows scored by both.

    The models are judged on the same windows, so that what makes a window hard cancels in each difference. For small
    differences this times the perplexity is the error of the perplexity's change.
    """
    names = ("tokens_by_window", "nll_by_window")
    (tokens, nll), (base_tokens, base_nll) = ([_numbers(d.get(n)) for n in names] for d in (details, base))
    if len(tokens) < 2 or min(tokens) <= 0 or tokens != base_tokens or not len(nll) == len(base_nll) == len(tokens):
        return None
    return ratio([a - b for a, b in zip(nll, base_nll, strict=True)], tokens).stderr


def _numbers(values: Any) -> list[float]:
    """A list of finite numbers from a record's details, [] when it is anything else."""
    numeric = isinstance(values, list) and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
    return values if numeric else []
