"""Collectives: what each card sends, and how long the links take for it. Sizes in bytes, one direction, of one card."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """What a card's links carry in one direction inside a node and between nodes, and how many cards a node has.

    ``meshed``: each pair of cards in a node has links of its own, so that few cards share little of ``inside``, and any card
    is one hop away. Where they were measured: ``gathering``, what they carry in gathers, if that is not what they carry in sums, and the
    seconds of a collective of next to nothing.
    """

    inside: float
    between: float
    cards_per_node: int = 8
    gathering: float | None = None
    seconds_to_meet: float = 0.0
    meshed: bool = False

    def rate(self, cards: int, stride: int = 1) -> float:
        """Bytes per second of a card in a group of ``cards`` whose members are ``stride`` apart.

        Between nodes a ring enters and leaves a node once, over the links of all members there: each card of a group
        that fills nodes sees the rate of a whole node, as long as the links inside carry it.
        """
        if cards * stride <= self.cards_per_node:
            return self.inside * ((cards - 1) / (self.cards_per_node - 1) if self.meshed and cards > 1 else 1.0)
        members = max(1, self.cards_per_node // stride)
        return min(self.inside, self.between * members)

    def rounds(self, cards: int) -> float:
        """What the latency of a collective grows with: the rounds of a tree, of which a mesh needs one."""
        if self.meshed and 1 < cards <= self.cards_per_node:
            return 1.0
        return math.log2(cards)


def all_reduce_bytes(size: float, cards: int) -> float:
    """A card sends (and receives) this much to sum ``size`` bytes: a reduce-scatter and an all-gather."""
    return 2 * gather_bytes(size, cards)


def gather_bytes(size: float, cards: int) -> float:
    """A card sends this much in an all-gather or reduce-scatter of ``size`` bytes in all."""
    return size * (cards - 1) / cards
