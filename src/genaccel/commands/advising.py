"""Commands that recommend: advise finetune, quantize, accelerator."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cyclopts import App

from genaccel import console

if TYPE_CHECKING:
    from genaccel.advise import Advice, Ranking
    from genaccel.advise_quantize import Mixture

advise = App(
    name="advise",
    help="Ranked advice with predicted figures, what rules the rest out, and the evidence.",
    help_format="plaintext",
)


@advise.command
def finetune(
    model: str,
    *,
    cluster: str,
    goal: Literal["fastest", "cheapest"] = "fastest",
    deadline: str | None = None,
    samples: int = 10_000,
    batch: int = 64,
    length: int = 2048,
    lora_rank: int | None = None,
    num: int = 5,
) -> None:
    """How to fine-tune a model on a cluster: cards, strategy, attention, batch.

    Parameters
    ----------
    model
        Model of the catalogue, or its hub id.
    cluster
        Cluster of the catalogue.
    goal
        fastest, or cheapest in card-hours.
    deadline
        Time that the job may take: 24h, 90m, 2d.
    samples
        Samples of the whole job.
    batch
        Samples of an optimizer step over all cards.
    length
        Tokens of a sample.
    lora_rank
        Train adapters of this rank instead of all weights.
    num
        How many recommendations to list.
    """
    from genaccel.advise import advise_finetuning, hours, instead
    from genaccel.hardware import find_cluster
    from genaccel.predict.finetuning import Finetuning

    limit = None if deadline is None else hours(deadline)
    card = find_cluster(cluster).card
    if "bf16" not in card.peak_flops and "fp16" in card.peak_flops:
        console.warn(f"{card.name} does not compute in bf16: fp16 is assumed.")
        precision = "fp16"
    else:
        precision = "bf16"
    base = Finetuning(
        model,
        card.name,
        precision=precision,
        global_batch=batch,
        length=length,
        lora_rank=lora_rank,
        cluster=cluster,
        samples=samples,
    )
    result = advise_finetuning(base, goal, limit, num)
    if not result.ranked:
        result.instead = instead(base, goal, limit)
    console.emit(result.as_document(), lambda: _show(result, f"{model} on {cluster}, {samples:,} samples, {goal}"))


@advise.command
def accelerator(
    model: str,
    *,
    workload: str = "inference",
    goal: Literal["fastest", "cheapest"] = "fastest",
    cards: int = 1,
    batch: int = 16,
    num: int = 8,
) -> None:
    """Which accelerator of the catalogue suits a workload.

    Parameters
    ----------
    model
        Model of the catalogue, or tiny, small or base for super-resolution.
    workload
        finetune, inference or superres.
    goal
        fastest, or cheapest in energy at rated power.
    cards
        Cards.
    batch
        Samples, sequences or images at once.
    num
        How many recommendations to list.
    """
    from genaccel.advise import advise_accelerator

    result = advise_accelerator(workload, model, goal, num, cards, batch)
    console.emit(result.as_document(), lambda: _show(result, f"{workload} of {model}, {goal}"))


@advise.command
def quantize(
    model: str, *, on: str, max_perplexity_increase: str = "1%", batch: int = 1, runs: Path = Path("runs")
) -> None:
    """Which precision to serve a model in, within a loss of quality that records have measured.

    Parameters
    ----------
    model
        Model of the catalogue, or its hub id.
    on
        Accelerator to quantize for.
    max_perplexity_increase
        Largest increase of the perplexity against FP32, such as 1%.
    batch
        Sequences at once.
    runs
        Folder of records, which say what quantizing costs in quality.
    """
    from genaccel.advise_quantize import advise_quantization, percent
    from genaccel.store import read_records

    records = read_records(runs)[0] if runs.is_dir() else []
    limit = percent(max_perplexity_increase)
    found = advise_quantization(model, on, limit, records, batch)

    def text() -> None:
        title = f"{model} on {on}, perplexity at most {limit:.1%} above FP32"
        columns = ["weights", "compression", "tokens/s, predicted", "memory", "perplexity", "evidence"]
        rows = [_mixture(m, "within the limit") for m in found.allowed]
        rows += [_mixture(m, "beyond the limit") for m in found.refused]
        rows += [_mixture(m, "not measured") for m in found.unmeasured]
        console.table(title, columns, rows, (1, 2, 3, 4))
        for sentence in found.left_out:
            console.warn(f"No evidence: {sentence}")
        if not found.allowed:
            console.say(
                "No measured mixture is within the limit, so none is recommended: "
                f"'genaccel quantize {model} --target {on} --share 0.5' measures one."
            )
        else:
            console.say(f"Recommended: {found.allowed[0].name} ({found.allowed[0].evidence}).")

    console.emit(asdict(found), text)


def _mixture(m: Mixture, verdict: str) -> list[str]:
    rate = m.prediction.rates["new_tokens_per_second"]
    increase = "unknown" if m.increase is None else f"{m.increase:+.2%}"
    memory = console.format_bytes(m.prediction.memory_bytes or 0)
    return [m.name, f"{m.compression:.2f}x", f"{rate:,.0f}", memory, increase, f"{verdict}; {m.evidence}".rstrip("; ")]


SETTINGS = ("on", "cards", "strategy", "micro_batch", "activation_checkpointing", "attention", "precision")


def _show(result: Ranking, what: str) -> None:
    if result.ranked:
        shown = [key for key in SETTINGS if key in result.ranked[0].prediction.settings]
        columns = ["", *shown, "predicted", "80 % interval", "card-hours", "memory", "limited by"]
        rows = [[str(place), *_advice(a, shown)] for place, a in enumerate(result.ranked, 1)]
        names = [c.replace("activation_checkpointing", "recompute").replace("_", " ") for c in columns]
        console.table(f"Advice, predicted: {what}", names, rows, (0, len(shown) + 1, len(shown) + 3))
        places: dict[str, list[str]] = {}
        for place, a in enumerate(result.ranked, 1):
            for sentence in (*a.notes, *a.prediction.warnings):
                places.setdefault(sentence, []).append(str(place))
        for sentence, concerned in places.items():
            console.warn(f"{', '.join(concerned)}: {sentence}")
        evidence = result.ranked[0].evidence
        console.say(f"Evidence for the first: {'; '.join(evidence) or 'none published, hence the interval'}.")
        console.say(f"Interval: {result.ranked[0].prediction.basis}.")
    else:
        console.say(f"Nothing can be recommended for {what}.")
        for sentence in result.instead:
            console.say(sentence)
    if result.ruled_out:
        rows = [[name, str(count), why] for name, count, why in result.ruled_out]
        console.table("Ruled out", ["what", "configurations", "why"], rows, (1,))


def _advice(a: Advice, shown: list[str]) -> list[Any]:
    p = a.prediction
    job = p.job_seconds or p.seconds
    low, high = job * p.low / p.seconds, job * p.high / p.seconds
    share = "" if p.memory_share is None else f" ({p.memory_share:.0%})"
    settings = [str(p.settings[key]) for key in shown]
    hours = f"{job * p.settings['cards'] / 3600:,.1f}" if p.job_seconds else "-"
    return [
        *settings,
        _time(job),
        f"{_time(low)} to {_time(high)}",
        hours,
        console.format_bytes(p.memory_bytes or 0) + share,
        p.bound,
    ]


def _time(seconds: float) -> str:
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.3g} s"
