"""Fit corrections to measured times, and say what would have been predicted without a group of them.

Bayesian least squares on logarithms of times (Levenberg-Marquardt), with a heavy-tailed likelihood, so that a few wrong rows
do not matter, and normal priors on corrections. Rows of one device and stack share their constants, so that a step needs
only one small matrix for each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genaccel.predict.constants import LEVELS, Array, Corrections, Key, TimeModel

NOISE = 0.06
"""Standard deviation of what the formulas cannot explain, as a share of the time."""
TAIL = 0.15
"""Deviations much larger than this count little."""


@dataclass
class Problem:
    """Rows to fit: features as arrays over rows, seconds measured, where each ran, the group that it belongs to."""

    model: TimeModel
    features: dict[str, Array]
    seconds: Array
    keys: list[Key]
    groups: Array

    def __post_init__(self) -> None:
        self.logs = np.log(np.asarray(self.seconds, float))
        names = sorted({name for key in self.keys for name in key.names})
        self.index = {name: i for i, name in enumerate(names)}
        distinct = sorted(set(self.keys), key=lambda k: (k.family, k.device, k.stack))
        number = {key: i for i, key in enumerate(distinct)}
        self.place = np.array([number[key] for key in self.keys])
        self.uses = np.array([[self.index[name] for name in key.names] for key in distinct])
        spread = np.array([c.spread for c in self.model.constants])
        self.precision = np.array([1 / (LEVELS[level] * spread) ** 2 for level, _ in self.index]).ravel()
        _, number_of, counts = np.unique(self.groups, return_inverse=True, return_counts=True)
        weight = 1 / np.sqrt(counts[number_of])  # a group of many rows says less than so many groups
        self.weight = weight / weight.mean() / NOISE**2

    def logarithms(self, vector: Array) -> Array:
        """Logarithms of the constants, a row for each row."""
        corrections = vector.reshape(len(self.index), -1)
        return (self.model.prior + corrections[self.uses].sum(1))[self.place]

    def predicted(self, vector: Array, rows: Array | None = None) -> Array:
        """Logarithms of predicted seconds, of all rows or some."""
        chosen = slice(None) if rows is None else rows
        features = {name: values[chosen] for name, values in self.features.items()}
        return np.log(self.model.seconds(self.logarithms(vector)[chosen], features))

    def corrections(self, vector: Array) -> Corrections:
        """The fitted vector by level and name."""
        rows = vector.reshape(len(self.index), -1)
        return Corrections(self.model, {name: rows[i] for name, i in self.index.items()})

    def start(self, corrections: Corrections | None) -> Array:
        """The vector of corrections that are known; zeros where nothing is."""
        size = len(self.model.constants)
        known = corrections.values if corrections else {}
        return np.concatenate([known.get(name, np.zeros(size)) for name in self.index])


@dataclass
class State:
    """The problem linearized at ``vector``: residuals, their weights, gradients by constant, sums by place."""

    vector: Array
    residuals: Array
    weights: Array
    gradients: Array
    cost: float


def linearize(problem: Problem, vector: Array) -> State:
    """Residuals and their derivatives with respect to the logarithms of the constants."""
    logs = problem.logarithms(vector)
    base = np.log(problem.model.seconds(logs, problem.features))
    gradients = np.empty((len(base), logs.shape[1]))
    for k in range(logs.shape[1]):
        moved = logs.copy()
        moved[:, k] += 1e-4
        gradients[:, k] = (np.log(problem.model.seconds(moved, problem.features)) - base) / 1e-4
    residuals = problem.logs - base
    weights = problem.weight / (1 + (residuals / TAIL) ** 2)
    return State(vector, residuals, weights, gradients, cost_of(problem, vector, residuals))


def cost_of(problem: Problem, vector: Array, residuals: Array | None = None) -> float:
    """Minus twice the logarithm of the posterior, up to a constant."""
    r = problem.logs - problem.predicted(vector) if residuals is None else residuals
    fit = (problem.weight * TAIL**2 * np.log1p((r / TAIL) ** 2)).sum()
    return float(fit + (problem.precision * vector**2).sum())


def normal_equations(problem: Problem, state: State, rows: Array | None = None) -> tuple[Array, Array]:
    """(matrix, right-hand side) of a step, priors left out; of ``rows`` alone where given."""
    chosen = np.arange(len(state.residuals)) if rows is None else rows
    size, count = state.gradients.shape[1], len(problem.index)
    matrix = np.zeros((count, size, count, size))
    right = np.zeros((count, size))
    for place in np.unique(problem.place[chosen]):
        at = chosen[problem.place[chosen] == place]
        weighted = state.gradients[at] * state.weights[at, None]
        square, side = weighted.T @ state.gradients[at], weighted.T @ state.residuals[at]
        for i in problem.uses[place]:
            right[i] += side
            for j in problem.uses[place]:
                matrix[i, :, j, :] += square
    return matrix.reshape(count * size, count * size), right.ravel()


def fit(problem: Problem, start: Corrections | None = None, steps: int = 100) -> State:
    """The corrections that explain the rows best."""
    state, damping = linearize(problem, problem.start(start)), 1e-2
    for _ in range(steps):
        matrix, right = normal_equations(problem, state)
        matrix += np.diag(problem.precision)
        right -= problem.precision * state.vector
        for _ in range(8):
            step = np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), right)
            cost = cost_of(problem, state.vector + step)
            if cost < state.cost:
                break
            damping *= 4
        else:
            return state
        gained = state.cost - cost
        state, damping = linearize(problem, state.vector + step), damping / 3
        if gained < 1e-6 * abs(cost):
            return state
    return state


@dataclass
class Influence:
    """The inverse of the fit's matrix, from which leaving rows out follows without solving anew (Woodbury's identity)."""

    problem: Problem
    state: State
    inverse: Array
    right: Array

    @classmethod
    def of(cls, problem: Problem, state: State) -> Influence:
        """Invert once."""
        matrix, right = normal_equations(problem, state)
        inverse = np.linalg.inv(matrix + np.diag(problem.precision))
        return cls(problem, state, inverse, right - problem.precision * state.vector)

    def without(self, rows: Array) -> Array:
        """The corrections without ``rows``: Newton's step from the fit of all rows."""
        problem, state = self.problem, self.state
        size, count = state.gradients.shape[1], len(problem.index)
        spreads, squares, right = [], [], self.right.copy()
        for place in np.unique(problem.place[rows]):
            at = rows[problem.place[rows] == place]
            weighted = state.gradients[at] * state.weights[at, None]
            # A row's design is its gradient, once for each level: one block of columns for each place.
            spread = np.zeros((count, size, size))
            spread[problem.uses[place]] = np.eye(size)
            spread = spread.reshape(count * size, size)
            right -= spread @ (weighted.T @ state.residuals[at])
            spreads.append(spread)
            squares.append(weighted.T @ state.gradients[at])
        spread = np.concatenate(spreads, 1)
        square = np.zeros((spread.shape[1],) * 2)
        for i, block in enumerate(squares):
            square[i * size : (i + 1) * size, i * size : (i + 1) * size] = block
        reach = self.inverse @ spread
        step = self.inverse @ right
        core = np.eye(len(square)) - square @ (spread.T @ reach)
        return state.vector + step + reach @ np.linalg.solve(core, square @ (spread.T @ step))


def leave_groups_out(problem: Problem, state: State, groups: Array) -> Array:
    """Logarithms of predicted seconds of every row, each predicted without its group."""
    influence = Influence.of(problem, state)
    found = np.empty(len(problem.logs))
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        found[rows] = problem.predicted(influence.without(rows), rows)
    return found


def stack_features(names: Sequence[str], rows: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """Features of many configurations as arrays."""
    return {name: np.array([row[name] for row in rows], float) for name in names}
