"""Ranked advice: what to run where, with predicted figures, what rules the rest out, and the evidence by its id.

Nothing here knows which strategy is good: candidates are predicted, those that cannot run are set aside with the reason, and
the rest is ranked by the goal. Times that differ by less than a prediction can tell apart count as equal; then the one
that sends less over links goes first, and then the one that needs less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from math import log
from typing import Any, Literal

from genaccel.errors import UserError, unknown
from genaccel.hardware import accelerators, find_cluster
from genaccel.predict.answers import features_of
from genaccel.predict.chips import chip_for
from genaccel.predict.evidence_rows import evidence_for
from genaccel.predict.exchanges import messages
from genaccel.predict.finetuning import (
    HEADROOM,
    Finetuning,
    cards_that_would_do,
    memory_of,
    predict_finetuning,
    step_of,
)
from genaccel.predict.generating import Generating, predict_generating
from genaccel.predict.prediction import Prediction
from genaccel.predict.superresolving import Superresolving, predict_superresolving
from genaccel.predict.training import TrainingStep
from genaccel.shapes import find_shape

Goal = Literal["fastest", "cheapest"]
TIE = 0.03
"""Predicted times this close count as equal: repeating a run differs by as much."""
MOST_CARDS = 512


@dataclass(frozen=True)
class Advice:
    """One recommendation. ``value`` is what it was ranked by: seconds or card-seconds.

    ``sent_bytes`` over links and ``messages`` are of a step of one card.
    """

    prediction: Prediction
    value: float
    sent_bytes: float
    messages: float
    evidence: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass
class Ranking:
    """Advice, best first; ``ruled_out`` are (what, how many, why) of the rest, ``instead`` what else would do."""

    goal: str
    ranked: list[Advice] = field(default_factory=list)
    ruled_out: list[tuple[str, int, str]] = field(default_factory=list)
    instead: list[str] = field(default_factory=list)

    def as_document(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "goal": self.goal,
            "ranked": [
                a.prediction.as_document() | {"ranked_by": a.value, "evidence": a.evidence, "notes": a.notes}
                for a in self.ranked
            ],
            "instead": self.instead,
            "ruled_out": [{"what": what, "how_many": count, "why": why} for what, count, why in self.ruled_out],
        }


def ranked(found: Sequence[Advice], num: int) -> list[Advice]:
    """Best first. Those within ``TIE`` of the best one left are ordered by what they send, then by messages."""
    left, chosen = sorted(found, key=lambda a: a.value), list[Advice]()
    while left and len(chosen) < num:
        equal = [a for a in left if a.value <= left[0].value * (1 + TIE)]
        best = min(equal, key=lambda a: (round(20 * log(max(a.sent_bytes, 1.0))), a.messages, a.value))
        chosen.append(best)
        left = [a for a in left if a is not best]
    return chosen


def hours(text: str) -> float:
    """'24h', '90m', '2d' as hours."""
    units = {"m": 1 / 60, "h": 1.0, "d": 24.0}
    try:
        found = float(text[:-1]) * units[text[-1:].lower()]
    except (KeyError, ValueError):
        raise UserError(f"The deadline '{text}' is not a time.", "Write 24h, 90m or 2d.") from None
    if found <= 0:
        raise UserError(f"The deadline '{text}' has passed.", "Give a time above zero.")
    return found


def card_counts(cluster: str) -> list[int]:
    """Cards that one may take of a cluster: powers of two up to a node, then whole nodes."""
    found = find_cluster(cluster)
    node = found.cards_per_node
    total = min(MOST_CARDS, node * (found.num_nodes or 8))
    counts = [c for c in (1, 2, 4, 8) if c < node]
    while node <= total:
        counts.append(node)
        node *= 2
    return counts


def finetuning_candidates(base: Finetuning, counts: Sequence[int]) -> list[Finetuning]:
    """Every number of cards, strategy, way to keep activations and kernel of attention."""
    found = []
    for cards in counts:
        strategies = ("single",) if cards == 1 else ("ddp", "zero1", "zero2", "zero3", "fsdp")
        for strategy in strategies:
            for checkpointing in (False, True):
                for attention in ("flash", "math"):
                    values = asdict(base) | {
                        "cards": cards,
                        "strategy": strategy,
                        "checkpointing": checkpointing,
                        "attention": attention,
                    }
                    found.append(Finetuning(**values))
    return found


def advise_finetuning(
    base: Finetuning, goal: Goal = "fastest", deadline_hours: float | None = None, num: int = 5
) -> Ranking:
    """The best ways to fine-tune ``base.model`` on the cards of ``base.cluster``."""
    assert base.cluster is not None
    shape = find_shape(base.model)
    counts = [c for c in card_counts(base.cluster) if base.global_batch % c == 0]
    if not counts:
        raise UserError(f"A batch of {base.global_batch} divides into no number of cards.", "Choose --batch 64.")
    result, found = Ranking(goal), []
    misfits: dict[str, list[Prediction]] = {}
    for ask in finetuning_candidates(base, counts):
        prediction = predict_finetuning(ask)
        if not prediction.fits:
            misfits.setdefault(ask.strategy, []).append(prediction)
            continue
        job = prediction.job_seconds or prediction.seconds
        step = step_of(ask, shape, chip_for(base.on, base.cluster, ask.cards), prediction.settings["micro_batch"])
        found.append(Advice(prediction, job if goal == "fastest" else job * ask.cards, _sent(step), messages(step), ()))
    late = (
        [] if deadline_hours is None else [a for a in found if (a.prediction.job_seconds or 0) > deadline_hours * 3600]
    )
    kept = [a for a in found if a not in late]
    _explain(result, misfits, late, deadline_hours)
    result.ranked = [_with_evidence(a, deadline_hours) for a in ranked(kept, num)]
    return result


def instead(base: Finetuning, goal: Goal, deadline_hours: float | None) -> list[str]:
    """What would do where nothing does: adapters, or a larger batch on more cards."""
    assert base.cluster is not None
    most = max(card_counts(base.cluster))
    others = {f"--batch {most}": {"global_batch": most}} if most > base.global_batch else {}
    if base.lora_rank is None:
        others |= {
            "--lora-rank 16": {"lora_rank": 16},
            f"--lora-rank 16 --batch {most}": {"lora_rank": 16, "global_batch": most},
        }
    sentences = _too_large(base, most)
    for option, change in others.items():
        found = advise_finetuning(Finetuning(**(asdict(base) | change)), goal, deadline_hours, 1).ranked
        if found:
            p = found[0].prediction
            job = (p.job_seconds or p.seconds) / 3600
            where = f"{p.settings['strategy']} on {p.settings['cards']} cards"
            sentences.append(f"With {option} it would do: {where}, {job:.1f} h (predicted).")
    return sentences


def _too_large(base: Finetuning, most: int) -> list[str]:
    """How many cards would do, where not even all of the cluster's hold a step with one sample each."""
    shape, memory = find_shape(base.model), chip_for(base.on, base.cluster).memory_bytes
    least = {"cards": most, "global_batch": most, "checkpointing": True}
    smallest = [Finetuning(**(asdict(base) | least | {"strategy": strategy})) for strategy in ("fsdp", "zero3")]
    if not memory or min(memory_of(s, shape, 1).total_bytes for s in smallest) <= HEADROOM * memory:
        return []
    told = cards_that_would_do(base, shape, memory)
    return [f"{shape.name} is too large for {most} cards of {base.cluster}: {told[0].lower()}{told[1:]}"]


def _sent(step: TrainingStep) -> float:
    """Bytes that a card sends in a step, as if over the links inside a node."""
    features = features_of(step)
    return float((features["data_wire"] + features["model_wire"]) * step.chip.links.inside)


def _with_evidence(advice: Advice, deadline_hours: float | None) -> Advice:
    p = advice.prediction
    evidence = evidence_for(p.workload, p.settings["on"], p.settings["model"], p.settings.get("strategy"))
    notes = []
    if deadline_hours is not None and p.job_seconds is not None:
        latest = p.job_seconds * p.high / p.seconds
        if latest > deadline_hours * 3600:
            notes.append("may miss the deadline: the interval reaches beyond it")
    return Advice(p, advice.value, advice.sent_bytes, advice.messages, evidence, tuple(notes))


def _explain(
    result: Ranking,
    misfits: dict[str, list[Prediction]],
    late: Sequence[Advice],
    deadline_hours: float | None,
) -> None:
    """What rules the rest out, by strategy."""
    for strategy, predictions in misfits.items():
        least = min(predictions, key=lambda p: p.memory_bytes or 0.0)
        need, share = (least.memory_bytes or 0) / 1e9, least.memory_share or 0
        cards = least.settings["cards"]
        why = f"do not fit: at least {need:.0f} GB a card ({share:.0%}) even on {cards} card{'s' if cards > 1 else ''}"
        result.ruled_out.append((strategy, len(predictions), why))
    by_strategy: dict[str, list[Advice]] = {}
    for advice in late:
        by_strategy.setdefault(str(advice.prediction.settings["strategy"]), []).append(advice)
    for strategy, found in by_strategy.items():
        soonest = min(a.prediction.job_seconds or 0 for a in found) / 3600
        result.ruled_out.append(
            (strategy, len(found), f"miss the deadline of {deadline_hours:g} h: {soonest:.1f} h at best")
        )


def advise_accelerator(
    workload: str, model: str, goal: Goal = "fastest", num: int = 8, cards: int = 1, batch: int = 16
) -> Ranking:
    """Accelerators of the catalogue for a workload, by speed or by energy at their rated power."""
    asks: dict[str, Callable[[str], Prediction]] = {
        "finetune": lambda on: _best_finetuning(model, on, cards, batch),
        "inference": lambda on: predict_generating(Generating(model, on, cards, batch)),
        "superres": lambda on: predict_superresolving(Superresolving(model, on, cards, batch)),
    }
    if workload not in asks:
        raise unknown("workload", workload, asks)
    if cards < 1 or batch < 1:
        raise UserError(f"{cards} cards and a batch of {batch} do nothing.", "Both must be at least 1.")
    result, found = Ranking(goal), []
    for name, card in accelerators().items():
        if card.memory_bytes_per_second is None or not (card.peak_flops or name == "gaudi1"):
            continue
        try:
            prediction = asks[workload](name)
        except UserError as error:
            if "There is no" in error.message:  # the model or the workload, not this card
                raise
            result.ruled_out.append((name, 1, error.message))
            continue
        if not prediction.fits:
            result.ruled_out.append((name, 1, prediction.problem or ""))
            continue
        watts = (prediction.joules_at_most or 0) / prediction.seconds
        value = prediction.seconds if goal == "fastest" else prediction.seconds * (watts or 1e9)
        evidence = evidence_for(workload, name, model, None)
        found.append(Advice(prediction, value, 0.0, 0.0, evidence))
    result.ranked = ranked(found, num)
    return result


def _best_finetuning(model: str, on: str, cards: int, batch: int) -> Prediction:
    """The fastest configuration that fits, or the one nearest to fitting."""
    base = Finetuning(model, on, cards, global_batch=batch - batch % cards or cards)
    found = [predict_finetuning(ask) for ask in finetuning_candidates(base, [cards]) if ask.attention == "flash"]
    fitting = [p for p in found if p.fits]
    return min(fitting, key=lambda p: p.seconds) if fitting else min(found, key=lambda p: p.memory_bytes or 0.0)
