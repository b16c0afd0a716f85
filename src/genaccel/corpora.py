"""Texts to calibrate on and to be judged by: WikiText-2, Python's own documentation, or a file of yours."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError, did_you_mean

Split = Literal["test", "calibration"]

TEXTS = {
    "wikitext2": "WikiText-2 raw: test split from the hub or a data folder; calibration on its validation split",
    "pydoc": "the English of Python's help topics, built in: the second half to test, the first to calibrate",
}


@dataclass(frozen=True)
class Corpus:
    """A text, its name, where it came from and the SHA-256 of its UTF-8 bytes."""

    name: str
    text: str
    source: str
    sha256: str


def load_corpus(name: str, split: Split = "test", data_dir: Path | None = None) -> Corpus:
    """The text called ``name`` (see ``TEXTS``) or the UTF-8 text file at that path; empty text is refused."""
    if name == "pydoc":
        text, source = _pydoc(split), "pydoc_data.topics of the running Python"
    elif name == "wikitext2":
        text, source = _wikitext2(split, data_dir)
    else:
        path = Path(name).expanduser()
        if not path.is_file():
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
    where = f"The folder {folder} has no wikitext-2/{file_name}" if folder else "No data folder is given"
    hint = f"{where}; without one it is fetched from the hub (pip install 'genaccel[hub]')."
    try:
        from datasets import load_dataset
    except ImportError:
        raise UserError("WikiText-2 is not here.", hint) from None
    try:
        rows = load_dataset(
            "Salesforce/wikitext", "wikitext-2-raw-v1", split={"test": "test", "calibration": "validation"}[split]
        )
    except Exception as error:  # datasets raises many kinds for 'cannot be reached'
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise UserError(f"WikiText-2 could not be had from the hub: {reason}.", hint) from error
    return "".join(rows["text"]), "hub: Salesforce/wikitext, wikitext-2-raw-v1"


def _read(path: Path) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # newlines as they are: they are tokens
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"The text {path} cannot be read: {reason}.", "Give a plain UTF-8 text file.") from None
