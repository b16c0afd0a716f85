"""Texts to calibrate on and to be judged by: WikiText-2, Python's own documentation, or a file of yours.

And rows of questions: HellaSwag and BoolQ. Data come from the file that was named, else from a folder of evaluation
data, else from the hub; the SHA-256 goes into the record.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genaccel.errors import UserError, did_you_mean, reason_of

Split = Literal["test", "calibration"]

TEXTS = {
    "wikitext2": "WikiText-2 raw: test split from the hub or a data folder; calibration on its validation split",
    "pydoc": "the English of Python's help topics, built in: the second half to test, the first to calibrate",
}


HUB_TEXT = ("Salesforce/wikitext", "wikitext-2-raw-v1")


@dataclass(frozen=True)
class Corpus:
    """A text, its name, where it came from and the SHA-256 of its UTF-8 bytes."""

    name: str
    text: str
    source: str
    sha256: str


def load_corpus(name: str, split: Split = "test", data_dir: Path | None = None, file: Path | None = None) -> Corpus:
    """The text called ``name`` (see ``TEXTS``) or the UTF-8 text file at that path; empty text is refused.

    ``file``, where it is given, holds the text that goes by ``name``.
    """
    if file is not None:
        text, source = _read(_home(file)), file.name
    elif name == "pydoc":
        text, source = _pydoc(split), "pydoc_data.topics of the running Python"
    elif name == "wikitext2":
        text, source = _wikitext2(split, data_dir)
    else:
        path = _home(name)
        if not os.path.isfile(path):  # unlike Path.is_file, no error for a name that is too long
            hint = did_you_mean(name, TEXTS) + " The path of a text file works too."
            raise UserError(f"There is no text '{name}'.", hint)
        text, source = _read(path), path.name
    if not text.strip():
        raise UserError(f"The text '{name}' is empty.", "Give a text of at least one window of tokens.")
    return Corpus(name, text, source, hashlib.sha256(text.encode()).hexdigest())


def data_folder(data_dir: Path | None) -> Path | None:
    """The evaluation data's folder: the one given, or $GENACCEL_DATA; ``UserError`` when that is no folder."""
    if data_dir is None and os.environ.get("GENACCEL_DATA"):
        data_dir = Path(os.environ["GENACCEL_DATA"])
    if data_dir is not None and not data_dir.is_dir():
        raise UserError(f"There is no data folder {data_dir}.", "Check --data-dir and the variable GENACCEL_DATA.")
    return data_dir


def _pydoc(split: Split) -> str:
    from pydoc_data.topics import topics

    text = "\n".join(topics[name] for name in sorted(topics))
    middle = text.index("\n", len(text) // 2) + 1
    return text[:middle] if split == "calibration" else text[middle:]


def _wikitext2(split: Split, data_dir: Path | None) -> tuple[str, str]:
    folder = data_folder(data_dir)
    file_name = {"test": "wiki.test.raw", "calibration": "wiki.valid.raw"}[split]
    if folder is not None and (folder / "wikitext-2" / file_name).exists():
        return _read(folder / "wikitext-2" / file_name), f"wikitext-2/{file_name}"
    rows = _from_hub("WikiText-2", HUB_TEXT, {"test": "test", "calibration": "validation"}[split], folder, file_name)
    return "".join(row["text"] for row in rows), f"hub: {', '.join(HUB_TEXT)}"


def _from_hub(title: str, address: tuple[str, ...], split: str, folder: Path | None, file_name: str) -> Any:
    """The rows of one split of a hub data set; the ``UserError`` also says which local file would have done."""
    where = f"The folder {folder} has no {file_name}" if folder else "No data folder is given"
    hint = f"{where}; without one it is fetched from the hub (pip install 'genaccel[hub]')."
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError(f"{title} is not here.", hint) from None
    try:
        return load_dataset(*address, split=split)
    except Exception as error:  # datasets raises many kinds for 'cannot be reached'
        raise UserError(f"{title} could not be had from the hub: {reason_of(error)}.", hint) from error


@dataclass(frozen=True)
class Rows:
    """Rows of a data set as JSON objects, their line numbers, where they came from and the SHA-256 of the file's bytes."""

    items: tuple[dict[str, Any], ...]
    lines: tuple[int, ...]
    source: str
    sha256: str


@dataclass(frozen=True)
class RowFiles:
    """Where the rows of a set of questions lie: below a data folder and on the hub."""

    title: str
    test: str
    train: str
    hub: tuple[str, ...]


ROW_FILES = {
    "hellaswag": RowFiles(
        "HellaSwag", "hellaswag/hellaswag_val.jsonl", "hellaswag/hellaswag_train.jsonl", ("Rowan/hellaswag",)
    ),
    "boolq": RowFiles("BoolQ", "boolq/dev.jsonl", "boolq/train.jsonl", ("aps/super_glue", "boolq")),
}


def load_rows(
    name: str, split: Literal["validation", "train"], data_dir: Path | None = None, file: Path | None = None
) -> Rows | None:
    """The rows of ``name`` (see ``ROW_FILES``); ``file``, where it is given, holds its validation split.

    None when the training split is asked for and the validation split came from a file without one beside it.
    """
    known = ROW_FILES[name]
    if file is not None:
        return read_rows(_home(file)) if split == "validation" else None
    folder = data_folder(data_dir)
    local = {"validation": known.test, "train": known.train}[split]
    if folder is not None and (folder / local).exists():
        return read_rows(folder / local, local)
    if split == "train" and folder is not None and (folder / known.test).exists():
        return None
    items = tuple(dict(row) for row in _from_hub(known.title, known.hub, split, folder, local))
    text = json.dumps(items, ensure_ascii=False, sort_keys=True)
    source = f"hub: {', '.join(known.hub)}, {split}"
    return Rows(items, tuple(range(1, len(items) + 1)), source, hashlib.sha256(text.encode()).hexdigest())


def read_rows(path: Path, source: str | None = None) -> Rows:
    """The objects of a JSON-lines file; ``UserError`` names the line that is none."""
    text = _read(path)
    items, lines = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError as error:
            raise UserError(f"Line {number} of {path} is not JSON: {error}.", "Fetch the file again.") from None
        if not isinstance(item, dict):
            raise UserError(f"Line {number} of {path} is not a JSON object.", "Each line holds one example.")
        items.append(item)
        lines.append(number)
    if not items:
        raise UserError(f"{path} holds no examples.", "Fetch the file again.")
    return Rows(tuple(items), tuple(lines), source or path.name, hashlib.sha256(text.encode()).hexdigest())


def _home(name: str | Path) -> Path:
    """The path with ~ resolved; with an unknown user's ~ it stays as it is, and will not be found."""
    return Path(os.path.expanduser(name))


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # newlines as they are: they are tokens
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"The text {path} cannot be read: {reason}.", "Give a plain UTF-8 text file.") from None
