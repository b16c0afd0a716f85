"""The constants of the time models: few, each with a meaning, shared by all models that run on a device and a stack.

The logarithm of a constant is the sum of its prior, a common correction, and corrections of the chip's family, the device,
the software stack, and the two together. A device or stack that was never seen has no correction of its own, so that
its constants are those of its family and of everything else: partial pooling, as in a random-effects model.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from genaccel.errors import UserError, unknown
from genaccel.hardware import USER_FOLDER
from genaccel.predict.chips import MEASURED

LEVELS = {"common": 0.5, "family": 0.4, "device": 0.4, "stack": 0.5, "together": 0.15}
"""Standard deviation of the corrections (of logarithms) at each level, before anything is fitted."""
Array = Any
"""A float or a numpy array of floats: formulas are written once for one configuration and for ten thousand."""


@dataclass(frozen=True)
class Constant:
    """``prior`` is what physics suggests; ``spread`` scales how far fitting may take it.

    ``measured`` takes the prior's place on a card whose rates are those that kernels reached: a share of the peak is then
    nearly 1, and what a kernel costs is a number of starts. Those that are neither were read off a profile of torch on a CPU.
    """

    name: str
    prior: float
    spread: float
    meaning: str
    measured: float | None = None


@dataclass(frozen=True)
class TimeModel:
    """Seconds by part from features (see ``parts``); ``total`` is their sum."""

    name: str
    constants: tuple[Constant, ...]
    features: tuple[str, ...]
    parts: Callable[[Mapping[str, Array], Mapping[str, Array]], dict[str, Array]]

    def seconds(self, logarithms: Array, features: Mapping[str, Array]) -> Array:
        """The time of a step or request; ``logarithms`` has a row for each configuration and a column for each constant."""
        return sum(self.parts(self.named(logarithms), features).values())

    def named(self, logarithms: Array) -> dict[str, Array]:
        """The constants by name from the array of their logarithms."""
        values = np.exp(np.asarray(logarithms, float))
        return {constant.name: values[..., index] for index, constant in enumerate(self.constants)}

    @property
    def prior(self) -> Array:
        """Logarithms of the priors."""
        return np.log([constant.prior for constant in self.constants])

    @property
    def prior_measured(self) -> Array:
        """Those of cards whose rates were measured."""
        return np.log([constant.measured or constant.prior for constant in self.constants])


@dataclass(frozen=True)
class Key:
    """Where a configuration runs: what its constants depend on."""

    family: str
    device: str
    stack: str

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """(level, name) of the corrections that apply; what others reach of their peaks says nothing of measured rates."""
        together = f"{self.device} {self.stack}"
        if self.family == MEASURED:
            return (("together", together),)
        return (
            ("common", ""),
            ("family", self.family),
            ("device", self.device),
            ("stack", self.stack),
            ("together", together),
        )


@dataclass
class Corrections:
    """Fitted corrections by (level, name), each a vector over the constants of one time model."""

    model: TimeModel
    values: dict[tuple[str, str], Array] = field(default_factory=dict)

    def logarithms(self, key: Key) -> Array:
        """The logarithms of the constants of ``key``; levels never seen add nothing."""
        total = self.model.prior_measured if key.family == MEASURED else self.model.prior
        for name in key.names:
            if name in self.values:
                total = total + self.values[name]
        return total

    def has(self, level: str, name: str) -> bool:
        """Whether anything was fitted at this level under this name."""
        return (level, name) in self.values

    def as_document(self) -> dict[str, Any]:
        """For a TOML file: level -> name -> constant -> correction, small ones left out."""
        document: dict[str, Any] = {}
        for (level, name), vector in sorted(self.values.items()):
            kept = {c.name: round(float(v), 3) for c, v in zip(self.model.constants, vector, strict=True)}
            document.setdefault(level, {})[name or "all"] = {c: v for c, v in kept.items() if abs(v) >= 0.003}
        return document

    @classmethod
    def from_document(cls, model: TimeModel, document: Mapping[str, Any]) -> Corrections:
        """What ``as_document`` gave."""
        found = cls(model)
        names = [constant.name for constant in model.constants]
        for level, entries in document.items():
            for name, given in entries.items():
                unknown = set(given) - set(names)
                if unknown:
                    raise UserError(f"The constants of {model.name} have no {min(unknown)}.", "Fit them again.")
                vector = np.array([float(given.get(n, 0.0)) for n in names])
                found.values[(level, "" if level == "common" else name)] = vector
        return found


@cache
def stored() -> dict[str, Any]:
    """The document of fitted constants that comes with the package, and one's own corrections beside them."""
    file = resources.files("genaccel").joinpath("catalogue/constants.toml")
    document = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    own = os.environ.get(USER_FOLDER)
    path = Path(own) / "constants.toml" if own else None
    if path is not None and path.is_file():
        for name, given in tomllib.loads(path.read_text(encoding="utf-8")).items():
            for level, entries in given.get("corrections", {}).items():
                document[name]["corrections"].setdefault(level, {}).update(entries)
    return document


def check_stack(model: TimeModel, name: str | None) -> None:
    """Raise ``UserError`` for software that nothing is known about."""
    known = {stack for level, stack in corrections_of(model).values if level == "stack"} | {"genaccel"}
    if name is not None and name not in known:
        raise unknown("stack", name, known)


@cache
def corrections_of(model: TimeModel) -> Corrections:
    """The stored corrections of a time model; priors alone where nothing was fitted."""
    return Corrections.from_document(model, stored().get(model.name, {}).get("corrections", {}))
