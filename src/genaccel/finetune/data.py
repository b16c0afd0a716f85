"""Instruction data and plain text -> tokens, and which of them the loss counts.

Of a conversation only the answers count, with the token that ends them. Tokens are kept on disk under a hash of the
text, the tokenizer and the settings, so that a data set is tokenized once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from genaccel import console
from genaccel.corpora import load_corpus
from genaccel.errors import UserError, did_you_mean, reason_of
from genaccel.store import write_bytes

Kind = Literal["text", "completion", "conversation"]
TooLong = Literal["error", "truncate", "drop"]
LAYOUT_VERSION = 1  # of the tokens that the same text gives; part of the cache's key
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}


@dataclass(frozen=True)
class Turn:
    """Who says what in a conversation."""

    role: str
    content: str


@dataclass(frozen=True)
class Dataset:
    """Records of one kind: texts, (prompt, completion) as two turns, or conversations.

    ``places`` name each record for messages, and ``whole`` tells a running text, which may be cut anywhere.
    """

    name: str
    kind: Kind
    records: tuple[Any, ...]
    places: tuple[str, ...]
    source: str
    sha256: str
    whole: bool = False


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
        spans = [slice(int(self.starts[i]), int(self.starts[i + 1])) for i in examples]
        starts = np.concatenate([[0], np.cumsum(self.lengths[examples])]).astype(np.int64)
        tokens, marks = (np.concatenate([a[s] for s in spans]) for a in (self.tokens, self.is_target))
        digest = hashlib.sha256(f"{self.sha256}{examples.tolist()}".encode()).hexdigest()
        return TokenizedData(tokens, marks, starts, digest)


# --- Reading ----------------------------------------------------------------------------------------------------------


def load_dataset_named(name: str, data_dir: Path | None = None) -> Dataset:
    """The data set ``name``: pydoc, wikitext2, a .txt, .json or .jsonl file, or a hub id (``owner/name[:split]``).

    A malformed or empty record is a ``UserError`` that names it.
    """
    path = Path(name).expanduser() if not name.startswith("~") or name.startswith("~/") else Path(name)
    if name in ("pydoc", "wikitext2") or path.suffix == ".txt":
        corpus = load_corpus(name, "calibration", data_dir)
        return Dataset(name, "text", (corpus.text,), (name,), corpus.source, corpus.sha256, whole=True)
    if path.suffix in (".json", ".jsonl"):
        return _parsed(name, *_read_file(path))
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _parsed(name, *_from_hub(name))
    hint = did_you_mean(name, ("pydoc", "wikitext2"))
    raise UserError(f"There is no data set '{name}'.", f"{hint} A .json, .jsonl or .txt file or a hub id works too.")


def _read_file(path: Path) -> tuple[list[Any], list[str], str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"The data set {path} cannot be read: {reason}.", "Give a JSON or JSON-lines file.") from None
    digest = hashlib.sha256(text.encode()).hexdigest()
    if path.suffix == ".jsonl":
        items, places = [], []
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                items.append(_json(line, f"Line {number} of {path}"))
                places.append(f"line {number} of {path.name}")
    else:
        items = _json(text, str(path))
        if not isinstance(items, list):
            raise UserError(f"{path} holds no list of records.", "A .json file is a list; use .jsonl for lines.")
        places = [f"record {n} of {path.name}" for n in range(1, len(items) + 1)]
    return items, places, path.name, digest


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError(f"{where} is not JSON: {error}.", "Fetch or write the file again.") from None


def _from_hub(name: str) -> tuple[list[Any], list[str], str, str]:
    address, _, split = name.partition(":")
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(f"'{name}' would come from the hub.", "pip install 'genaccel[hub]', or give a file.") from None
    try:
        items = [dict(row) for row in load_dataset(address, split=split or "train")]
    except Exception as error:  # datasets raises many kinds for 'cannot be reached'
        raise UserError(f"The data set '{name}' could not be had from the hub: {reason_of(error)}.", "") from error
    digest = hashlib.sha256(json.dumps(items, ensure_ascii=False, sort_keys=True).encode()).hexdigest()
    return items, [f"record {n} of {name}" for n in range(1, len(items) + 1)], f"hub: {name}", digest


def _parsed(name: str, items: list[Any], places: list[str], source: str, digest: str) -> Dataset:
    if not items:
        raise UserError(f"The data set {name} holds no records.", "")
    first = items[0] if isinstance(items[0], dict) else {}
    reader = next((r for keys, r in READERS if all(k in first for k in keys)), None)
    if reader is None:
        raise UserError(
            f"{places[0].capitalize()} has the keys {', '.join(sorted(first)) or 'of no object'}, which no known kind has.",
            "Records have instruction and output, prompt and completion, messages, conversations, or text.",
        )
    kind, read = reader
    records = []
    for item, place in zip(items, places, strict=True):
        if not isinstance(item, dict):
            raise UserError(f"{place.capitalize()} is not a JSON object.", "")
        records.append(read(item, place))
    return Dataset(name, kind, tuple(records), tuple(places), source, digest)


def _text_of(item: dict[str, Any], key: str, place: str, *, may_be_empty: bool = False) -> str:
    value = item.get(key, "" if may_be_empty else None)
    if value is None and may_be_empty:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{place.capitalize()} has no text under '{key}'.", "All records of a file are of one kind.")
    if not value.strip() and not may_be_empty:
        raise UserError(f"{place.capitalize()} has an empty '{key}'.", "Remove the record, or fill it.")
    return value


def _alpaca(item: dict[str, Any], place: str) -> tuple[Turn, ...]:
    task, more = _text_of(item, "instruction", place), _text_of(item, "input", place, may_be_empty=True)
    asked = f"{task}\n\n{more}" if more.strip() else task
    return Turn("user", asked), Turn("assistant", _text_of(item, "output", place))


def _completion(item: dict[str, Any], place: str) -> tuple[Turn, ...]:
    return Turn("user", _text_of(item, "prompt", place)), Turn("assistant", _text_of(item, "completion", place))


def _messages(key: str, role: str, content: str) -> Callable[[dict[str, Any], str], tuple[Turn, ...]]:
    def read(item: dict[str, Any], place: str) -> tuple[Turn, ...]:
        said = item.get(key)
        if not isinstance(said, list) or not all(isinstance(m, dict) for m in said):
            raise UserError(f"{place.capitalize()} has no list of messages under '{key}'.", "")
        turns = []
        for message in said:
            who = ROLES.get(str(message.get(role)))
            if who is None:
                raise UserError(f"{place.capitalize()} has a message by '{message.get(role)}'.", f"Known: {', '.join(ROLES)}.")
            turns.append(Turn(who, _text_of(message, content, place)))
        if not any(t.role == "assistant" for t in turns):
            raise UserError(f"{place.capitalize()} has no answer: no message is the assistant's.", "")
        return tuple(turns)

    return read


READERS: tuple[tuple[tuple[str, ...], tuple[Kind, Callable[[dict[str, Any], str], Any]]], ...] = (
    (("messages",), ("conversation", _messages("messages", "role", "content"))),
    (("conversations",), ("conversation", _messages("conversations", "from", "value"))),
    (("instruction", "output"), ("conversation", _alpaca)),
    (("prompt", "completion"), ("completion", _completion)),
    (("text",), ("text", lambda item, place: _text_of(item, "text", place))),
)


# --- Tokenizing -------------------------------------------------------------------------------------------------------


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
                        f"{place.capitalize()} has {len(ids)} tokens, more than --length {length}.",
                        "Add --too-long truncate or drop, or a longer --length.",
                    )
                over = len(ids) > length
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
        yield from ((piece, [False] + [True] * (len(piece) - 1)) for piece in pieces)
    elif dataset.kind == "completion":
        yield _plain(record[0].content, record[1].content, tokenizer)
    elif getattr(tokenizer, "chat_template", None):
        yield _templated(record, place, tokenizer)
    else:
        yield _plain(plain_prompt(record[:-1]), record[-1].content, tokenizer)


def _plain(prompt: str, answer: str, tokenizer: Any) -> tuple[list[int], list[bool]]:
    asked = tokenizer(prompt, verbose=False)["input_ids"]
    said = tokenizer(answer, add_special_tokens=False, verbose=False)["input_ids"] + _end(tokenizer)
    return asked + said, [False] * len(asked) + [bool(asked) or i > 0 for i in range(len(said))]


def _end(tokenizer: Any) -> list[int]:
    return [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]


def plain_prompt(turns: tuple[Turn, ...]) -> str:
    """A conversation for a model without a layout of its own: each turn under its role, ending where an answer begins."""
    return "".join(f"{turn.role.capitalize()}: {turn.content}\n\n" for turn in turns) + "Assistant: "


def _templated(turns: tuple[Turn, ...], place: str, tokenizer: Any) -> tuple[list[int], list[bool]]:
    """The model's own layout; an answer is what it adds to the conversation before, and all of it counts."""
    ids: list[int] = []
    marks: list[bool] = []
    for number, turn in enumerate(turns):
        if turn.role != "assistant":
            continue
        before, after = _layout(turns[:number], tokenizer, True), _layout(turns[: number + 1], tokenizer, False)
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
