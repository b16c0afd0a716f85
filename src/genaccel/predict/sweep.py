"""Many configurations at once: every combination of values, each predicted or refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from genaccel.errors import UserError
from genaccel.predict.prediction import Prediction

MOST = 100_000
"""Combinations that are answered at once."""


def combinations(values: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values, the last name changing fastest. ``UserError`` when there are too many."""
    count = 1
    for options in values.values():
        count *= len(options)
    if count > MOST:
        raise UserError(f"These are {count:,} configurations, more than {MOST:,}.", "Give fewer values.")
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def sweep(ask: Callable[..., Prediction], values: Mapping[str, Sequence[Any]]) -> tuple[list[Prediction], list[str]]:
    """(predictions, sentences about combinations that cannot be). A single combination raises what is wrong with it."""
    chosen = combinations(values)
    if len(chosen) == 1:
        return [ask(**chosen[0])], []
    found, refused = [], []
    for settings in chosen:
        try:
            found.append(ask(**settings))
        except UserError as error:
            refused.append(error.message)
    if not found:
        raise UserError(refused[0], "None of the combinations can be.")
    return found, list(dict.fromkeys(refused))
