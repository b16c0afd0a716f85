"""Ask for text generation on cards that are not here."""

from __future__ import annotations

from dataclasses import dataclass

from genaccel.errors import UserError, unknown
from genaccel.predict.chips import Chip, chip_for, cluster_with
from genaccel.predict.constants import check_stack
from genaccel.predict.decoder import Decoder, decoder_of
from genaccel.predict.prediction import Known, Prediction, predict
from genaccel.predict.serving import FORMATS, SERVING, Request
from genaccel.shapes import find_shape

STACKS = {"cuda": "vllm", "hpu": "optimum-habana"}


@dataclass(frozen=True)
class Generating:
    """What is asked: ``batch`` sequences of ``prompt`` tokens that get ``new`` more, on ``cards`` that share the model.

    ``weights`` are formats and the share of the weights in each, as a precision plan gives them; ``precision`` without.
    """

    model: str
    on: str
    cards: int = 1
    batch: int | None = 1
    prompt: int = 512
    new: int = 512
    precision: str = "bf16"
    stack: str | None = None
    cluster: str | None = None
    weights: tuple[tuple[str, float], ...] = ()


def check(ask: Generating, model: Decoder, chip: Chip) -> None:
    """Raise ``UserError`` for the first thing that cannot be."""
    if ask.cards < 1:
        raise UserError(f"{ask.cards} cards cannot generate anything.", "Choose --cards 1 or more.")
    for name, _ in ask.weights or ((ask.precision, 1.0),):
        if name not in FORMATS:
            raise unknown("precision", name, FORMATS)
        chip.peak(FORMATS[name].arithmetic)
    if model.num_heads % ask.cards:
        near = max(d for d in range(1, ask.cards + 1) if model.num_heads % d == 0)
        raise UserError(
            f"The {model.num_heads} heads of {model.name} cannot be divided among {ask.cards} cards.",
            f"Choose --cards {near}, or another divisor.",
        )
    if (ask.batch is not None and ask.batch < 1) or ask.prompt < 1 or ask.new < 1:
        raise UserError(
            "Batch, prompt and new tokens must be at least 1.", "For example --batch 1 --prompt 512 --new 512."
        )
    check_stack(SERVING, ask.stack)
    if model.context is not None and ask.prompt + ask.new > model.context:
        raise UserError(
            f"{ask.prompt} + {ask.new} tokens are longer than {model.name}'s context of {model.context}.",
            "Choose a shorter --prompt or fewer --new tokens.",
        )


def request_of(ask: Generating, model: Decoder, chip: Chip) -> Request:
    """The request as its time model sees it."""
    weights = ask.weights or ((ask.precision, 1.0),)
    narrow = all(FORMATS[name].arithmetic in ("fp8", "fp4") for name, _ in weights)
    return Request(
        model=model,
        chip=chip,
        stack=ask.stack or STACKS.get(chip.runtime or "cuda", "genaccel"),
        batch=None if ask.batch is None else float(ask.batch),
        prompt=float(ask.prompt),
        new=float(ask.new),
        weights=weights,
        cache_element=4.0 if ask.precision == "fp32" else 1.0 if narrow else 2.0,
        shards=ask.cards,
    )


def predict_generating(ask: Generating) -> Prediction:
    """Time, memory and the rest of one configuration; ``problem`` says why it cannot run."""
    cluster_with(ask.cluster, ask.cards)
    chip, model = chip_for(ask.on, ask.cluster, max(1, ask.cards)), decoder_of(find_shape(ask.model))
    check(ask, model, chip)
    request = request_of(ask, model, chip)
    sequences = request.sequences
    found = predict(
        "inference",
        request,
        Known(
            settings={
                "model": model.name,
                "on": chip.name,
                "cards": ask.cards,
                "batch": int(sequences),
                "prompt": ask.prompt,
                "new": ask.new,
                "precision": ask.precision if not ask.weights else "+".join(f"{s:.0%} {n}" for n, s in ask.weights),
            },
            chip=chip,
            cards=ask.cards,
            precision=FORMATS[request.weights[0][0]].arithmetic,
            flops=_flops(request),
            rates={
                "new_tokens_per_second": sequences * ask.new,
                "tokens_per_second": sequences * (ask.new + ask.prompt),
            },
            memory_bytes=request.memory_bytes,
            problem=_problem(request),
            warnings=_warnings(request),
        ),
    )
    first = sum(s for name, s in found.parts.items() if name.startswith("prefill"))
    found.rates["time_to_first_token_seconds"] = first
    found.rates["seconds_per_new_token"] = (found.seconds - first) / ask.new
    return found


def _flops(r: Request) -> float:
    """What the model's mathematics needs for all sequences."""
    tokens = r.sequences * (r.prompt + r.new)
    pairs = r.sequences * r.model.causal_pairs(r.prompt + r.new)
    scored = r.sequences * (r.new + 1) * r.model.head_weights
    return 2.0 * (tokens * r.model.layer_weights_per_token + scored) + r.model.attention_flops(pairs)


def _problem(r: Request) -> str | None:
    """Why it cannot run, with how many cards would do."""
    if r.room >= r.cache_bytes:
        return None
    weights = r.model.num_weights * r.weight_bytes
    for cards in (2**i for i in range(1, 8)):
        kept = r.model.cache_bytes_per_token(r.cache_element, cards) * r.model.looked_back(r.prompt + r.new)
        if weights / cards + kept <= 0.92 * r.chip.memory_bytes:
            more = f"{cards} cards would do"
            break
    else:
        more = "no number of cards would do"
    return (
        f"{r.model.name} takes {weights / r.shards / 1e9:.0f} GB a card and {r.cache_bytes / 1e9:.1f} GB of keys and values "
        f"for one sequence, but {r.chip.name} has {r.chip.memory_bytes / 1e9:.0f} GB; {more}"
    )


def _warnings(r: Request) -> tuple[str, ...]:
    found = []
    if r.sequences > max(r.most_sequences, 1.0):
        found.append(f"keys and values of {r.most_sequences:.0f} sequences fit at once: the batch goes in waves")
    if r.chip.reference:
        found.append(f"no peak of {r.chip.name} was published: its rates are fitted to published runs alone")
    return tuple(found)
