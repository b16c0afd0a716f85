"""Two models judged on the same examples: differences with error bars, so that 'no loss' is a statement. No torch here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel.errors import UserError
from genaccel.evaluate.intervals import Estimate, paired_accuracy, paired_log_ratio
from genaccel.evaluate.questions import Identity
from genaccel.records import Figure, Record, record_from_json

if TYPE_CHECKING:
    from genaccel.evaluate.config import JudgeConfig


def load_baseline(path: Path) -> Record:
    """The record at ``path``; ``UserError`` when it cannot be read or holds nothing that can be compared."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UserError(f"The baseline {path} cannot be read: {reason}.", "Give a record's JSON file.") from None
    record = record_from_json(text, str(path))
    if "tasks" not in record.details and "nll_by_window" not in record.details:
        raise UserError(
            f"The baseline {path} was not judged.", "Give a record of 'genaccel evaluate' or 'genaccel quantize'."
        )
    return record


def data_of(details: Mapping[str, Any]) -> dict[str, Identity]:
    """What a record's model was judged by, from its details, in the form of ``JudgeConfig.data``."""
    found: dict[str, Identity] = {"text": ("", details["text"]["sha256"], "")} if "text" in details else {}
    for name, task in details.get("tasks", {}).items():
        found[name] = ("" if name == "wikitext2" else task["protocol"], *_identity(task)[1:])
    return found


def _identity(task: Mapping[str, Any]) -> Identity:
    return task["protocol"], task["sha256"], task.get("train_sha256", "")


def check_alike(baseline: Record, config: JudgeConfig, seed: int) -> None:
    """Raise ``UserError`` where the baseline was judged by other data or protocols than ``config`` asks for.

    Called before anything is scored. What the baseline lacks altogether is no error unless nothing is left to compare.
    """
    theirs, ours = data_of(baseline.details), config.data(seed)
    tasks = sorted(ours.keys() & theirs.keys() - {"text"})
    same_text = "text" in ours and theirs.get("text") == ours["text"]
    if not tasks and not same_text:
        raise UserError(
            "The baseline was judged by another text and other tasks, so there is nothing to compare.",
            "Judge both by the same --text or --tasks.",
        )
    for name in tasks:
        if theirs[name][1:] != ours[name][1:]:
            raise UserError(f"The baseline's {name} came from other data.", "Judge both on the same files.")
        if theirs[name] != ours[name]:
            raise UserError(
                f"The baseline was judged by another protocol: {theirs[name][0]}; this one is {ours[name][0]}.",
                "Use the same --limit, --num-fewshot and --seed for both.",
            )
    settings = ["limit"] if same_text or "wikitext2" in tasks else []
    settings += ["window", "stride"] if same_text else []
    for name in settings:
        value, other = getattr(config, name), baseline.config.get(name)
        if other is not None and other.value != value:
            raise UserError(
                f"The baseline was judged with {name} {_shown(other.value)}, this model with {_shown(value)}.",
                f"Use the same --{name} for both.",
            )


def _shown(value: int | None) -> str:
    return "not set" if value is None else str(value)


def paired_figures(details: Mapping[str, Any], baseline: Record) -> tuple[tuple[Figure, ...], tuple[str, ...]]:
    """Differences of everything that both were judged by, and a sentence for whatever could not be paired.

    ``details`` are those of the model's own judgement.
    """
    figures: list[Figure] = []
    unpaired: list[str] = []
    ours, theirs = details.get("tasks", {}), baseline.details.get("tasks", {})
    for name, mine in ours.items():
        other = theirs.get(name)
        if other is None:
            unpaired.append(f"The baseline was not judged by {name}; no difference is given.")
        elif _identity(mine) != _identity(other):
            unpaired.append(
                f"The baseline's {name} has another protocol ({other['protocol']}); no difference is given."
            )
        elif name == "wikitext2":
            ratio = paired_log_ratio(mine["nll_by_page"], other["nll_by_page"], mine["words_by_page"])
            figures.append(_ratio("word_perplexity", ratio, f"{len(mine['nll_by_page'])} pages", baseline))
        else:
            figures += [
                _difference(name, m, mine["correct"][m], other["correct"][m], baseline) for m in mine["correct"]
            ]
    if "nll_by_window" in details and "nll_by_window" in baseline.details:
        same = all(details[key] == baseline.details[key] for key in ("text", "tokens_by_window"))
        if same:
            ratio = paired_log_ratio(
                details["nll_by_window"], baseline.details["nll_by_window"], details["tokens_by_window"]
            )
            figures.append(_ratio("perplexity", ratio, f"{len(details['nll_by_window'])} windows", baseline))
        else:
            unpaired.append("The baseline's perplexity is of another text or other windows; no ratio is given.")
    return tuple(figures), tuple(unpaired)


def _difference(task: str, metric: str, ours: str, theirs: str, baseline: Record) -> Figure:
    paired = paired_accuracy([c == "1" for c in ours], [c == "1" for c in theirs])
    return Figure(
        f"{task}_{metric}_difference",
        paired.difference.value,
        "1",
        "measured",
        f"{task} {metric} minus that of record {baseline.id} ({baseline.label}), paired over {len(ours)} questions",
        note=f"95 % interval by Tango's score; McNemar's exact test p = {paired.mcnemar_p:.3g}: {paired.num_only_ours} questions are right here alone, "
        f"{paired.num_only_baseline} there alone",
        stderr=paired.difference.stderr,
        interval=paired.difference.interval,
    )


def _ratio(name: str, ratio: Estimate, over: str, baseline: Record) -> Figure:
    protocol = f"{name} over that of record {baseline.id} ({baseline.label}), paired over {over}"
    return Figure(f"{name}_ratio", ratio.value, "x", "measured", protocol, stderr=ratio.stderr, interval=ratio.interval)


def example_lines(examples: Iterable[Mapping[str, Any]]) -> str:
    """Results by example as JSON lines."""
    return "".join(json.dumps(example, ensure_ascii=False, allow_nan=False) + "\n" for example in examples)
