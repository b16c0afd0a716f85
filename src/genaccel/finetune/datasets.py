"""Instruction files and texts -> records of one kind, each of which messages can name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genaccel.corpora import load_corpus
from genaccel.errors import UserError, did_you_mean, reason_of

Kind = Literal["text", "completion", "conversation"]
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}

OTHER_FILES = (".csv", ".tsv", ".parquet", ".arrow", ".gz", ".zst", ".zip", ".pkl", ".pt")  # data/x.csv is no hub id


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
    if path.suffix.lower() in OTHER_FILES or path.exists():
        raise UserError(f"The data set {name} is of a kind that is not read.", "Give a .json, .jsonl or .txt file.")
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
            f"{places[0][:1].upper()}{places[0][1:]} has the keys {', '.join(sorted(first)) or 'of no object'}, which no known kind has.",
            "Records have instruction and output, prompt and completion, messages, conversations, or text.",
        )
    kind, read = reader
    records = []
    for item, place in zip(items, places, strict=True):
        if not isinstance(item, dict):
            raise UserError(f"{place[:1].upper()}{place[1:]} is not a JSON object.", "")
        records.append(read(item, place))
    return Dataset(name, kind, tuple(records), tuple(places), source, digest)


def _text_of(item: dict[str, Any], key: str, place: str, *, may_be_empty: bool = False) -> str:
    value = item.get(key, "" if may_be_empty else None)
    if value is None and may_be_empty:
        return ""
    if not isinstance(value, str):
        raise UserError(
            f"{place[:1].upper()}{place[1:]} has no text under '{key}'.", "All records of a file are of one kind."
        )
    if not value.strip() and not may_be_empty:
        raise UserError(f"{place[:1].upper()}{place[1:]} has an empty '{key}'.", "Remove the record, or fill it.")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise UserError(
            f"{place[:1].upper()}{place[1:]} has half a character (a lone surrogate) in '{key}'.", "Write it as UTF-8."
        )
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
            raise UserError(f"{place[:1].upper()}{place[1:]} has no list of messages under '{key}'.", "")
        turns = []
        for message in said:
            who = ROLES.get(str(message.get(role)))
            if who is None:
                raise UserError(
                    f"{place[:1].upper()}{place[1:]} has a message by '{message.get(role)}'.",
                    f"Known: {', '.join(ROLES)}.",
                )
            turns.append(Turn(who, _text_of(message, content, place)))
        if not any(t.role == "assistant" for t in turns):
            raise UserError(f"{place[:1].upper()}{place[1:]} has no answer: no message is the assistant's.", "")
        return tuple(turns)

    return read


READERS: tuple[tuple[tuple[str, ...], tuple[Kind, Callable[[dict[str, Any], str], Any]]], ...] = (
    (("messages",), ("conversation", _messages("messages", "role", "content"))),
    (("conversations",), ("conversation", _messages("conversations", "from", "value"))),
    (("instruction", "output"), ("conversation", _alpaca)),
    (("prompt", "completion"), ("completion", _completion)),
    (("text",), ("text", lambda item, place: _text_of(item, "text", place))),
)
