"""HellaSwag and BoolQ as questions: a context and endings, one of which is right. No torch here.

The wording follows EleutherAI's lm-evaluation-harness 0.4.13 (tasks ``hellaswag`` and ``boolq``), so that figures can be
compared with published ones: an ending follows its context after one space, solved examples are separated by an empty
line. HellaSwag's original rows (activity_label, ctx_a, ctx_b) are cleaned as that task does; rows that bring a finished
``query`` are taken as they are, and the protocol says which it was.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from genaccel.corpora import Rows, load_rows
from genaccel.errors import UserError, unknown

Metric = Literal["acc", "acc_norm", "acc_bytes"]
Identity = tuple[str, str, str]
"""Of data to be judged by: the protocol ('' where the data say all), hashes of the file and of a training file, or ''."""


@dataclass(frozen=True)
class Question:
    """A context, its possible endings (without the space in front of them) and the index of the right one."""

    context: str
    endings: tuple[str, ...]
    answer: int

    @property
    def solved(self) -> str:
        """The question with its answer, as a few-shot example shows it."""
        return f"{self.context} {self.endings[self.answer]}"


@dataclass(frozen=True)
class ChoiceTask:
    """How rows become questions, and which accuracies are reported."""

    name: str
    question_of: Callable[[dict[str, Any]], Question]
    wording_of: Callable[[dict[str, Any]], str]
    metrics: tuple[Metric, ...]


@dataclass(frozen=True)
class Task:
    """Questions ready to be scored, few-shot examples included, and what the protocol and the record say about them."""

    name: str
    questions: tuple[Question, ...]
    metrics: tuple[Metric, ...]
    protocol: str
    source: str
    sha256: str
    train_sha256: str = ""
    """Of the file that solved examples come from, where that is another one."""

    @property
    def identity(self) -> Identity:
        """What two models must have in common to be judged alike by this task."""
        return self.protocol, self.sha256, self.train_sha256


# --- One row ----------------------------------------------------------------------------------------------------------


def hellaswag_question(row: dict[str, Any]) -> Question:
    """A HellaSwag row, original or with a finished ``query``; ``ValueError`` says what is wrong with it."""
    endings = row["endings"]
    if not isinstance(endings, list | tuple) or len(endings) < 2 or not all(isinstance(e, str) for e in endings):
        raise ValueError("'endings' is not a list of two or more texts")
    if _is_original(row):
        context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
        return Question(clean(context), tuple(map(clean, endings)), _label(row["label"], len(endings)))
    if not isinstance(row["query"], str):
        raise ValueError("'query' is not a text")
    return Question(row["query"], tuple(endings), _label(row["label"], len(endings)))


def clean(text: str) -> str:
    """WikiHow's section marks become full stops, other bracketed marks go, double spaces become single once."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def _is_original(row: dict[str, Any]) -> bool:
    return all(isinstance(row.get(key), str) for key in ("activity_label", "ctx_a", "ctx_b"))


def _hellaswag_wording(row: dict[str, Any]) -> str:
    return "text cleaned as lm-eval does" if _is_original(row) else "text as the file gives it (preprocessed query)"


def boolq_question(row: dict[str, Any]) -> Question:
    """A BoolQ row with ``answer`` (true or false) or ``label`` (1 or 0); ``ValueError`` says what is wrong with it."""
    if not isinstance(row["passage"], str) or not isinstance(row["question"], str):
        raise ValueError("'passage' or 'question' is not a text")
    answer = row["answer"] if "answer" in row else _label(row["label"], 2)
    if "answer" in row and not isinstance(answer, bool):
        raise ValueError(f"'answer' is {answer!r}, not true or false")
    return Question(f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:", ("no", "yes"), int(answer))


def _label(label: Any, num_endings: int) -> int:
    index = int(label) if isinstance(label, str) and label.isdecimal() else label
    if isinstance(index, bool) or not isinstance(index, int):
        raise ValueError(f"the label {label!r} is no number")
    if not 0 <= index < num_endings:
        raise ValueError(f"the label is {index}, but there are {num_endings} endings (0..{num_endings - 1})")
    return index


CHOICE_TASKS = {
    task.name: task
    for task in (
        ChoiceTask("hellaswag", hellaswag_question, _hellaswag_wording, ("acc", "acc_norm", "acc_bytes")),
        ChoiceTask(
            "boolq", boolq_question, lambda _: "passage as the file gives it, answers ' no' and ' yes'", ("acc",)
        ),
    )
}
TASKS = {
    "wikitext2": "WikiText-2: perplexity per token of the text, and per word and byte by pages as lm-eval counts them",
    "hellaswag": "HellaSwag validation: which of four endings is most likely",
    "boolq": "BoolQ development set: is ' yes' or ' no' more likely",
}


# --- A task -----------------------------------------------------------------------------------------------------------


def parse_tasks(names: Sequence[str]) -> dict[str, Path | None]:
    """'hellaswag,boolq=FILE' -> {'hellaswag': None, 'boolq': FILE}; ``UserError`` for a name that no task has."""
    tasks: dict[str, Path | None] = {}
    for item in (part.strip() for name in names for part in name.split(",")):
        name, _, file = item.partition("=")
        if name not in TASKS:
            raise unknown("task", name, TASKS)
        if name in tasks:
            raise UserError(f"The task '{name}' is named twice.", "Name each task once.")
        tasks[name] = Path(file) if file else None
    return tasks


def load_task(
    name: str, data_dir: Path | None, file: Path | None, limit: int | None, num_fewshot: int, seed: int
) -> Task:
    """The questions of ``name``, the first ``limit`` of them, each behind ``num_fewshot`` solved examples.

    Raises ``UserError`` naming the line of a row that is not as it should be.
    """
    kind = CHOICE_TASKS[name]
    if limit is not None and limit < 1:
        raise UserError(f"The limit is {limit}, but it must be at least 1.", "Leave it out for all questions.")
    rows = load_rows(name, "validation", data_dir, file)
    assert rows is not None, "only a training split may be missing"
    every = _questions(kind, rows)
    questions = every[:limit]
    shots, train = "0-shot", None
    if num_fewshot:
        train = load_rows(name, "train", data_dir, file)
        pool = _questions(kind, train) if train else every
        questions = with_examples(questions, pool, num_fewshot, seed, train is None)
        origin = f"the training set ({train.source})" if train else "the other questions"
        shots = f"{num_fewshot}-shot from {origin}, seed {seed}"
    scope = f"all {len(every)} examples" if len(questions) == len(every) else f"first {len(questions)} examples"
    protocol = f"{name}, {scope}, {shots}, {kind.wording_of(rows.items[0])}"
    train_sha256 = train.sha256 if train else ""
    return Task(name, tuple(questions), kind.metrics, protocol, rows.source, rows.sha256, train_sha256)


def _questions(kind: ChoiceTask, rows: Rows) -> list[Question]:
    questions = []
    for row, line in zip(rows.items, rows.lines, strict=True):
        try:
            if kind.wording_of(row) != kind.wording_of(rows.items[0]):
                raise ValueError("it has other fields than the first one")
            questions.append(kind.question_of(row))
        except KeyError as error:
            raise _broken(rows, line, f"the field {error} is missing") from None
        except ValueError as error:
            raise _broken(rows, line, str(error)) from None
    return questions


def _broken(rows: Rows, line: int, problem: str) -> UserError:
    return UserError(f"Example {line} of {rows.source} cannot be used: {problem}.", "Fetch the file again, or mend it.")


def with_examples(
    questions: Sequence[Question], pool: Sequence[Question], count: int, seed: int, pool_holds_them: bool
) -> list[Question]:
    """Each question behind ``count`` solved ones drawn from ``pool``; its own like is never among them.

    One generator serves all questions in turn, as lm-eval's does; with the same seed the draws are the same.
    """
    needed = count + 1 if pool_holds_them else count
    if needed > len(pool):
        raise UserError(
            f"{count} solved examples a question were asked for, but there are {len(pool)} to draw from.",
            "Lower --num-fewshot.",
        )
    generator = random.Random(seed)
    made = []
    for question in questions:
        drawn = generator.sample(pool, needed)
        if pool_holds_them:
            drawn = [q for q in drawn if q != question][:count]
            if len(drawn) < count:  # the pool holds the question more than once
                drawn = generator.sample([q for q in pool if q != question], count)
        shown = "".join(f"{q.solved}\n\n" for q in drawn)
        made.append(Question(shown + question.context, question.endings, question.answer))
    return made
