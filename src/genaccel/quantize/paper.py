"""The study's method: sensitivity-aware mixed-precision quantization, as it is published.

Phase 1 scores every transformer layer once, from the magnitudes of its weights alone. Phase 2 ranks the layers and
gives the sensitive ones the accelerator's higher precision, the robust ones its lower precision.

    l     a decoder layer, l = 1 .. L
    W_l   its weights: all projection matrices, without biases and normalization parameters
    p     the share of weights that count as small, 0.30
    tau   the one threshold for all layers: p of all considered weights are smaller in magnitude
    s_l   sensitivity of layer l: the share of W_l that survives, |{w in W_l : |w| >= tau}| / |W_l|

A layer that loses little to the common threshold holds large weights and is taken to be sensitive. The score costs two
passes over the weights and no data. ``scores_by_pruning_one_layer`` is the variant of related work (CPTQuant, arXiv
2412.02580): prune one layer at a time and score it by what that does to the loss on calibration text.

tau is exact. The bits of a non-negative float32, read as an integer, keep its order, so a histogram over their upper
half finds the bin that holds the quantile, and a second histogram over the lower half of that bin's members finds the
value (a two-digit radix selection). No more than one block of one matrix is copied at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from genaccel.errors import UserError

PRUNED_SHARE = 0.30

BLOCK = 1 << 22  # weights looked at together: 16 MiB in fp32
DIGIT = 1 << 16  # values of the lower half of a float32's bits
FIRST_NOT_FINITE = 0x7F80  # upper half of the bits of infinity; NaNs lie above

NamedWeights = Iterable[tuple[str, torch.Tensor]]
Layer = Callable[[], NamedWeights]  # called once a pass, so that weights can be streamed from a file


@dataclass(frozen=True)
class MagnitudeScores:
    """Phase 1's result: ``tau``, and for every layer ``s_l`` and the number of its weights."""

    tau: float
    scores: tuple[float, ...]
    num_weights: tuple[int, ...]


# --- Phase 1: sensitivity ---------------------------------------------------------------------------------------------


def scores_by_magnitude(layers: Sequence[Layer], p: float = PRUNED_SHARE) -> MagnitudeScores:
    """s_l for every layer against the common threshold tau.

    A weight equal to tau survives, so ties at tau never push the pruned share above ``p``. Raises ``UserError`` for a
    share outside (0, 1), for a layer without weights, and for a weight that is not finite (named).
    """
    if not 0 < p < 1:
        raise UserError(f"The pruned share is {p:g}, but it must lie between 0 and 1.", "The study prunes 0.30.")
    if not layers:
        raise UserError("The model has no layers to score.", "Give a decoder LM.")
    upper = torch.stack([_histogram(layer(), _upper_half, DIGIT // 2) for layer in layers])  # (L, 32768)
    n_l = upper.sum(1)
    if not n_l.all():
        raise UserError(f"Layer {int(n_l.argmin())} has no weights to score.", "The method needs some in every layer.")
    n = int(n_l.sum())
    k = min(int(p * n + 1e-9), n - 1)  # tau is the k-th smallest magnitude, counted from 0
    cumulative = upper.sum(0).cumsum(0)
    b = int(torch.searchsorted(cumulative, k, right=True))
    below_b = int(cumulative[b - 1]) if b else 0

    lower = torch.stack([_histogram(layer(), lambda bits: _lower_half_within(bits, b), DIGIT) for layer in layers])
    d = int(torch.searchsorted(lower.sum(0).cumsum(0), k - below_b, right=True))
    survivors = upper[:, b + 1 :].sum(1) + lower[:, d:].sum(1)

    tau = torch.tensor([b * DIGIT + d], dtype=torch.int32).view(torch.float32).item()
    return MagnitudeScores(tau, tuple((survivors.double() / n_l).tolist()), tuple(n_l.tolist()))


def scores_by_pruning_one_layer(
    layers: Sequence[Sequence[tuple[str, torch.Tensor]]],
    loss: Callable[[], float],
    p: float = PRUNED_SHARE,
    progress: Callable[[], None] = lambda: None,
) -> tuple[float, tuple[float, ...]]:
    """(loss of the intact model, increase of the loss when the smallest ``p`` of one layer's weights are zero).

    ``layers`` are the model's own parameters: they are pruned in place, one layer at a time, and restored.
    ``loss`` evaluates the model on the calibration text. ``progress`` is called after each layer.
    """
    intact = loss()
    increases = []
    for named in layers:
        tau_l = scores_by_magnitude([partial(iter, named)], p).tau
        kept = [weight.detach().clone() for _, weight in named]
        try:
            with torch.no_grad():
                for _, weight in named:
                    weight.masked_fill_(weight.abs() < tau_l, 0)
            increases.append(loss() - intact)
        finally:
            with torch.no_grad():
                for (_, weight), original in zip(named, kept, strict=True):
                    weight.copy_(original)
        progress()
    return intact, tuple(increases)


# --- Phase 2: precision -----------------------------------------------------------------------------------------------


def most_sensitive(scores: Sequence[float], count: int) -> set[int]:
    """Indices of the ``count`` layers with the highest s_l; among equals the earlier layer is taken first."""
    ranked = sorted(range(len(scores)), key=lambda layer: (-scores[layer], layer))
    return set(ranked[:count])


def count_by_share(num_layers: int, share: float) -> int:
    """How many layers get the higher precision when it is a share of them, rounded half up."""
    if not 0 <= share <= 1:
        raise UserError(
            f"The share of high-precision layers is {share:g}, but it must lie in 0..1.", "The default is 0.5."
        )
    return int(share * num_layers + 0.5)


def count_by_two_means(scores: Sequence[float]) -> int:
    """How many layers lie in the upper of two clusters of scores: the split with the least squared error.

    In one dimension the best two clusters are a prefix and a suffix of the sorted scores, so all splits are tried.
    When all scores are equal there is no upper cluster, and no layer is set apart.
    """
    ordered = torch.tensor(sorted(scores, reverse=True), dtype=torch.float64)
    if len(ordered) < 2 or bool(ordered[0] == ordered[-1]):
        return 0

    def squared_error(part: torch.Tensor) -> float:
        return float(((part - part.mean()) ** 2).sum())

    return min(range(1, len(ordered)), key=lambda m: squared_error(ordered[:m]) + squared_error(ordered[m:]))


def assign_precisions(scores: Sequence[float], num_high: int, high: str, low: str) -> list[str]:
    """The format of every layer: ``high`` for the ``num_high`` most sensitive ones, ``low`` for the others."""
    sensitive = most_sensitive(scores, num_high)
    return [high if layer in sensitive else low for layer in range(len(scores))]


# --- The exact quantile's histograms ----------------------------------------------------------------------------------


def _histogram(
    weights: NamedWeights, digit_of: Callable[[torch.Tensor], torch.Tensor], num_digits: int
) -> torch.Tensor:
    """Counts (int64, num_digits) of ``digit_of`` over the magnitudes' bits of all ``weights``."""
    counts = torch.zeros(num_digits, dtype=torch.int64)
    for name, weight in weights:
        for bits in _magnitude_bits(weight):
            counts += torch.bincount(digit_of(bits), minlength=num_digits).cpu()
        if counts[FIRST_NOT_FINITE:].any() and num_digits == DIGIT // 2:
            raise UserError(f"{name} holds weights that are not finite.", "The checkpoint is damaged; fetch it again.")
    return counts


def _magnitude_bits(weight: torch.Tensor) -> Iterator[torch.Tensor]:
    """|w| as order-preserving int32, block by block. fp16 and bf16 widen to fp32 without loss."""
    for block in torch.split(weight.detach().reshape(-1), BLOCK):
        yield block.to(torch.float32).view(torch.int32) & 0x7FFFFFFF


def _upper_half(bits: torch.Tensor) -> torch.Tensor:
    return bits >> 16


def _lower_half_within(bits: torch.Tensor, upper: int) -> torch.Tensor:
    return bits[(bits >> 16) == upper] & (DIGIT - 1)
