"""Records -> tokens, and which of them the loss counts.

Of a conversation only the answers count, with the token that ends them. Tokens are kept on disk under a hash of the
text, the tokenizer and the settings, so that a data set is tokenized once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from genaccel import console
from genaccel.errors import UserError, reason_of
from genaccel.finetune.datasets import Dataset, Turn
from genaccel.store import write_bytes

TooLong = Literal["error", "truncate", "drop"]
LAYOUT_VERSION = 2  # of the tokens that the same text gives; part of the cache's key


@dataclass(frozen=True)
class TokenizedData:
    """All examples' tokens one after the other. Example i is ``starts[i]:starts[i + 1]``.

    ``is_target`` marks the tokens whose prediction counts; never an example's first.
    """

    tokens: np.ndarray
    is_target: np.ndarray
    starts: np.ndarray
    sha256: str
    num_truncated: int = 0
    num_dropped: int = 0

    def warnings(self, name: str, length: int) -> tuple[str, ...]:
        """What was done to records that did not fit."""
        found = []
        for number, what in ((self.num_truncated, "truncated to"), (self.num_dropped, "left out: no answer within")):
            if number:
                found.append(f"{number} of the records of {name} were {what} {length} tokens")
        return tuple(found)

    @property
    def num_examples(self) -> int:
        """How many examples there are."""
        return len(self.starts) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each example."""
        return np.diff(self.starts)

    def targets_by_example(self) -> np.ndarray:
        """Targets of each example."""
        sums = np.concatenate([[0], np.cumsum(self.is_target)])
        return np.asarray(sums[self.starts[1:]] - sums[self.starts[:-1]])

    def only(self, examples: np.ndarray) -> TokenizedData:
        """These examples, in this order."""
        spans = [slice(0), *(slice(int(self.starts[i]), int(self.starts[i + 1])) for i in examples)]
        starts = np.concatenate([[0], np.cumsum(self.lengths[examples])]).astype(np.int64)
        tokens, marks = (np.concatenate([a[s] for s in spans]) for a in (self.tokens, self.is_target))
        digest = hashlib.sha256(f"{self.sha256}{examples.tolist()}".encode()).hexdigest()
        return TokenizedData(tokens, marks, starts, digest)


def tokenize(
    dataset: Dataset, tokenizer: Any, tokenizer_hash: str, length: int, cache: Path, too_long: TooLong = "error"
) -> TokenizedData:
    """The tokens of ``dataset``, from ``cache`` when the same text was tokenized alike before.

    A record of more than ``length`` tokens is a ``UserError`` that names it, or truncated, or dropped; one that is left
    without a target is dropped.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load, save

    key = (dataset.sha256, dataset.kind, dataset.whole, tokenizer_hash, length, too_long, LAYOUT_VERSION)
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    file = cache / f"{digest[:32]}.safetensors"
    try:
        kept = load(file.read_bytes())
        counts = kept["counts"].tolist()
        return TokenizedData(kept["tokens"], kept["is_target"], kept["starts"], digest, *counts)
    except (OSError, SafetensorError, KeyError):
        pass  # not there yet, or torn: made anew
    data = _tokenized(dataset, tokenizer, length, too_long, digest)
    counts = np.asarray([data.num_truncated, data.num_dropped], dtype=np.int64)
    arrays = {"tokens": data.tokens, "is_target": data.is_target, "starts": data.starts, "counts": counts}
    write_bytes(file, save(arrays))
    return data


def _tokenized(dataset: Dataset, tokenizer: Any, length: int, too_long: TooLong, digest: str) -> TokenizedData:
    tokens: list[np.ndarray] = []
    marks: list[np.ndarray] = []
    truncated = dropped = 0
    with console.progress(f"Tokenizing {dataset.name}", len(dataset.records)) as advance:
        for record, place in zip(dataset.records, dataset.places, strict=True):
            for ids, is_target in _examples(dataset, record, place, tokenizer, length):
                if len(ids) > length and too_long == "error":
                    raise UserError(
                        f"{_capital(place)} has {len(ids)} tokens, more than --length {length}.",
                        "Add --too-long truncate or drop, or a longer --length.",
                    )
                over = len(ids) > length
                if over and not (truncated or dropped):
                    console.warn(f"{place} has {len(ids)} tokens and is the first that is longer than {length}")
                if (over and too_long == "drop") or not any(is_target[:length]):
                    dropped += 1
                    continue
                truncated += over
                tokens.append(np.asarray(ids[:length], dtype=np.int32))
                marks.append(np.asarray(is_target[:length], dtype=bool))
            advance("")
    if not tokens:
        raise UserError(f"No record of {dataset.name} is left to train on.", "See --length and --too-long.")
    starts = np.concatenate([[0], np.cumsum([len(t) for t in tokens])]).astype(np.int64)
    return TokenizedData(np.concatenate(tokens), np.concatenate(marks), starts, digest, truncated, dropped)


def _examples(
    dataset: Dataset, record: Any, place: str, tokenizer: Any, length: int
) -> Iterator[tuple[list[int], list[bool]]]:
    """(tokens, which are targets) of one record; a running text gives many of ``length`` tokens."""
    if dataset.kind == "text":
        ids = tokenizer(record, add_special_tokens=not dataset.whole, verbose=False)["input_ids"]
        if not dataset.whole:
            ids = ids + _end(tokenizer)
        pieces = [ids[i : i + length] for i in range(0, len(ids), length)] if dataset.whole else [ids]
        # A running text's last piece may be one token, which predicts nothing; no record was lost with it.
        kept = [piece for piece in pieces if len(piece) > 1 or not dataset.whole]
        yield from ((piece, [False] + [True] * (len(piece) - 1)) for piece in kept)
    elif dataset.kind == "completion":
        yield _plain([(record[0].content, record[1].content)], tokenizer)
    elif record[0].role == "assistant":
        raise UserError(
            f"{_capital(place)} begins with an answer, and nothing was asked.", "Remove the message, or the record."
        )
    elif getattr(tokenizer, "chat_template", None):
        yield _templated(record, place, tokenizer)
    else:
        yield _plain(_exchanges(record), tokenizer)


def _capital(place: str) -> str:
    """The place at the beginning of a sentence; the names of files in it stay as they are."""
    return place[:1].upper() + place[1:]


def _exchanges(turns: tuple[Turn, ...]) -> Iterator[tuple[str, str]]:
    """(all that was said since the last answer, the answer); what nobody answered is left out."""
    begin = 0
    for number, turn in enumerate(turns):
        if turn.role == "assistant":
            yield ("\n\n" if begin else "") + plain_prompt(turns[begin:number]), turn.content
            begin = number + 1


def _plain(exchanges: Iterable[tuple[str, str]], tokenizer: Any) -> tuple[list[int], list[bool]]:
    """Prompts and answers one after the other; every answer counts, with the token that ends it."""
    ids: list[int] = []
    marks: list[bool] = []
    for prompt, answer in exchanges:
        asked = tokenizer(prompt, add_special_tokens=not ids, verbose=False)["input_ids"]
        said = tokenizer(answer, add_special_tokens=False, verbose=False)["input_ids"] + _end(tokenizer)
        ids += asked + said
        marks += [False] * len(asked) + [True] * len(said)
    if marks:
        marks[0] = False
    return ids, marks


def _end(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def plain_prompt(turns: tuple[Turn, ...]) -> str:
    """A conversation for a model without a layout of its own: each turn under its role, ending where an answer begins."""
    return "".join(f"{turn.role.capitalize()}: {turn.content}\n\n" for turn in turns) + "Assistant: "


def _templated(turns: tuple[Turn, ...], place: str, tokenizer: Any) -> tuple[list[int], list[bool]]:
    """The model's own layout; an answer is what it adds to the conversation before, and all of it counts."""
    from jinja2 import TemplateError

    ids: list[int] = []
    marks: list[bool] = []
    for number, turn in enumerate(turns):
        if turn.role != "assistant":
            continue
        try:
            before, after = _layout(turns[:number], tokenizer, True), _layout(turns[: number + 1], tokenizer, False)
        except TemplateError as error:
            raise UserError(
                f"{_capital(place)} does not fit the model's layout of conversations: {reason_of(error)}.",
                "Change the record, or use a model whose layout takes it.",
            ) from error
        if after[: len(before)] != before or before[: len(ids)] != ids:
            raise UserError(
                f"The model's layout of conversations changes earlier turns in {place}, so answers cannot be told apart.",
                "Use records with a single question and answer.",
            )
        marks += [False] * (len(before) - len(ids)) + [True] * (len(after) - len(before))
        ids = after
    marks[0] = False
    return ids, marks


def _layout(turns: tuple[Turn, ...], tokenizer: Any, prompts: bool) -> list[int]:
    messages = [{"role": t.role, "content": t.content} for t in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompts)
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """The tokens after which an answer to ``prompt`` begins."""
    turns = (Turn("user", prompt),)
    if getattr(tokenizer, "chat_template", None):
        return _layout(turns, tokenizer, True)
    return list(tokenizer(plain_prompt(turns), verbose=False)["input_ids"])


def tokenizer_hash(folder: Path) -> str:
    """A hash of the tokenizer's files, chat template included."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.name.startswith(("tokenizer", "vocab", "merges", "special_tokens", "added_tokens", "chat_template")):
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def split(data: TokenizedData, num_held_out: int, seed: int) -> tuple[TokenizedData, TokenizedData]:
    """(training examples, held-out ones), drawn by ``seed``."""
    if num_held_out >= data.num_examples:
        raise UserError(
            f"--holdout keeps out {num_held_out} of {data.num_examples} examples, which leaves none.", "Keep out fewer."
        )
    order = np.random.default_rng(seed).permutation(data.num_examples)
    return data.only(np.sort(order[num_held_out:])), data.only(np.sort(order[:num_held_out]))
