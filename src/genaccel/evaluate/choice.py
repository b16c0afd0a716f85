"""Questions answered by the likelihood of their endings: tokens as lm-eval makes them, scores, accuracies.

lm-eval 0.4.13 tokenizes context and ending together and takes what the context alone does not account for as the
ending (spaces at the context's end go with the ending); a sequence too long for the model loses tokens on its left. Both
are kept here, because both change scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genaccel.errors import UserError
from genaccel.evaluate.packing import Request, score_requests
from genaccel.evaluate.questions import Metric, Question
from genaccel.models import LoadedModel

DEFAULT_MAX_LENGTH = 2048
"""Tokens in the context of a model of which nothing tells; lm-eval's default."""
UNBOUNDED = 10**12
"""transformers gives a tokenizer that knows no bound one of 10^30."""


@dataclass(frozen=True)
class EncodedQuestion:
    """Token ids of a question. ``requests`` holds one entry, or several where endings left room for unequal contexts.

    ``scored`` are the endings that have tokens, by index and in the order in which the requests hold them;
    ``num_truncated`` counts endings whose context was cut.
    """

    requests: tuple[Request, ...]
    scored: tuple[int, ...]
    num_truncated: int


@dataclass(frozen=True)
class Answered:
    """One question's result: log-likelihood of each ending in nats (None where it has no tokens) and what follows."""

    log_likelihoods: tuple[float | None, ...]
    predictions: dict[Metric, int]
    correct: dict[Metric, bool]


# --- Tokens -----------------------------------------------------------------------------------------------------------


def encode_questions(loaded: LoadedModel, questions: Sequence[Question]) -> list[EncodedQuestion]:
    """Tokenize contexts and endings; ``UserError`` for an ending that is longer than the model's context."""
    window = context_length(loaded)
    texts: list[str] = []
    splits = []
    for question in questions:
        context = question.context.rstrip()
        moved = question.context[len(context) :]
        splits.append((context, moved))
        texts.append(context)
        texts += [context + moved + " " + ending for ending in question.endings]
    encoded = iter(encode_texts(loaded.tokenizer, texts))
    made = []
    for number, (question, (context, moved)) in enumerate(zip(questions, splits, strict=True), 1):
        head = next(encoded)
        tails = [next(encoded)[len(head) :] for _ in question.endings]
        if not context:
            head, tails = _behind_prefix(loaded.tokenizer, [moved + " " + e for e in question.endings])
        made.append(_fit(head, tails, window, number))
    return made


def context_length(loaded: LoadedModel) -> int:
    """Tokens that the model sees at once: its configuration's word, else its tokenizer's, else lm-eval's default."""
    if loaded.max_positions is not None:
        return loaded.max_positions
    told = loaded.tokenizer.model_max_length
    return int(told) if told < UNBOUNDED else DEFAULT_MAX_LENGTH


def encode_texts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids with the special tokens that the tokenizer adds by itself, except to a text that already begins so."""
    start = tokenizer.decode([prefix_token(tokenizer)])
    marked = [text.startswith(start) for text in texts]
    result: list[list[int]] = [[] for _ in texts]
    for special in (True, False):
        chosen = [i for i, m in enumerate(marked) if m != special and texts[i]]
        if chosen:
            ids = tokenizer([texts[i] for i in chosen], add_special_tokens=special, verbose=False)["input_ids"]
            for i, tokens in zip(chosen, ids, strict=True):
                result[i] = tokens
    return result


def prefix_token(tokenizer: Any) -> int:
    """The token that stands in for an empty context: BOS, or EOS where there is no BOS."""
    token = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if token is None:
        raise UserError(
            "The tokenizer has neither a BOS nor an EOS token to begin a text with.", "Add one to its configuration."
        )
    return int(token)


def _behind_prefix(tokenizer: Any, endings: Sequence[str]) -> tuple[list[int], list[list[int]]]:
    prefix = prefix_token(tokenizer)
    tails = [tokenizer(e, add_special_tokens=False, verbose=False)["input_ids"] for e in endings]
    return [prefix], [tail[1:] if tail[:1] == [prefix] else tail for tail in tails]


def _fit(head: list[int], tails: Sequence[list[int]], window: int, number: int) -> EncodedQuestion:
    """Cut contexts on the left so that context and ending, its last token left out, fit in ``window`` tokens."""
    scored = tuple(i for i, tail in enumerate(tails) if tail)
    longest = max((len(tails[i]) for i in scored), default=0)
    if longest > window:
        raise UserError(
            f"An ending of question {number} has {longest} tokens, the model's context has {window}.",
            "Leave that question out, or use a model with a longer context.",
        )
    by_length: dict[int, list[int]] = {}
    for i in scored:
        by_length.setdefault(min(len(head), window + 1 - len(tails[i])), []).append(i)
    requests = tuple(
        Request(tuple(head[len(head) - length :]), tuple(tuple(tails[i]) for i in endings))
        for length, endings in by_length.items()
    )
    in_order = tuple(i for endings in by_length.values() for i in endings)
    num_truncated = sum(len(endings) for length, endings in by_length.items() if length < len(head))
    return EncodedQuestion(requests, in_order, num_truncated)


# --- Scores -----------------------------------------------------------------------------------------------------------


def score_questions(
    loaded: LoadedModel,
    encoded: Sequence[EncodedQuestion],
    sizes: Sequence[int],
    batch_size: int | None,
    done: Callable[[int], bool],
    keep: Callable[[int, tuple[float | None, ...]], None],
) -> None:
    """Score the questions that are not ``done`` and hand each one's log-likelihoods to ``keep``.

    ``sizes`` are the numbers of endings, those without tokens included.
    """
    owners = [(number, part) for number, question in enumerate(encoded) for part in range(len(question.requests))]
    requests = [encoded[number].requests[part] for number, part in owners]
    waiting: dict[int, dict[int, list[float]]] = {}
    for number, question in enumerate(encoded):
        if not question.requests and not done(number):
            keep(number, (None,) * sizes[number])
    for batch in score_requests(loaded.model, requests, batch_size, lambda i: done(owners[i][0])):
        for index, sums in batch:
            number, part = owners[index]
            parts = waiting.setdefault(number, {})
            parts[part] = sums
            if len(parts) < len(encoded[number].requests) or done(number):
                continue
            values: list[float | None] = [None] * sizes[number]
            flat = [value for part in sorted(parts) for value in parts[part]]
            for ending, value in zip(encoded[number].scored, flat, strict=True):
                values[ending] = value
            keep(number, tuple(values))


def answer(question: Question, log_likelihoods: Sequence[float | None], metrics: Sequence[Metric]) -> Answered:
    """The likeliest ending by each metric; the first of equals, and never one without tokens.

    acc takes the log-likelihood as it is; acc_norm divides it by the ending's characters, acc_bytes by its UTF-8 bytes,
    the space in front not counted: lm-eval's definitions.
    """
    lengths: dict[Metric, list[int]] = {
        "acc": [1] * len(question.endings),
        "acc_norm": [len(e) for e in question.endings],
        "acc_bytes": [len(e.encode()) for e in question.endings],
    }
    predictions = {}
    for metric in metrics:
        scores = [
            float("-inf") if value is None or not length else value / length
            for value, length in zip(log_likelihoods, lengths[metric], strict=True)
        ]
        predictions[metric] = scores.index(max(scores))
    correct = {m: p == question.answer and log_likelihoods[p] is not None for m, p in predictions.items()}
    return Answered(tuple(log_likelihoods), predictions, correct)
