"""What a model is judged by: the fields are the command line's options, their docstrings its help. No torch here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from genaccel.errors import UserError

if TYPE_CHECKING:
    from genaccel.evaluate.perplexity import WindowProtocol
    from genaccel.evaluate.questions import Identity, Task
    from genaccel.evaluate.throughput import ThroughputProtocol


FEWSHOT_SEED = 1234
"""Draws the solved examples unless another is given; lm-eval's default."""


@dataclass(frozen=True)
class JudgeConfig:
    """How a model is judged.

    Parameters
    ----------
    text
        Text for the token perplexity: pydoc (built in), wikitext2, or the path of a text file. By default pydoc, or
        with --tasks only wikitext2, if it is among them.
    tasks
        wikitext2 (pages), hellaswag and boolq, separated by commas; NAME=FILE takes the data from a file.
    data_dir
        Folder with evaluation data (wikitext-2/wiki.test.raw ...); else $GENACCEL_DATA, else the hub.
    window
        Tokens per window of the token perplexity.
    stride
        Tokens that a window moves on; defaults to the window, so that windows do not overlap.
    limit
        Only the first so many windows of the text, and pages or questions of each task; by default all.
    num_fewshot
        Solved examples in front of each question of hellaswag and boolq.
    batch_size
        Questions that are scored at once; auto fills a batch by tokens. No score depends on it.
    speed
        Measure prefill and decode tokens per second.
    batch
        Sequences per batch in the speed measurement.
    prompt_tokens
        Prompt length in the speed measurement.
    new_tokens
        New tokens in the speed measurement.
    repeats
        Repeats of each speed measurement; the median is reported.
    """

    _: KW_ONLY
    text: str | None = None
    tasks: tuple[str, ...] = ()
    data_dir: Path | None = None
    window: int = 1024
    stride: int | None = None
    limit: int | None = None
    num_fewshot: int = 0
    batch_size: int | Literal["auto"] = "auto"
    speed: bool = True
    batch: int = 1
    prompt_tokens: int = 256
    new_tokens: int = 32
    repeats: int = 5

    def windows(self) -> WindowProtocol:
        """The perplexity's protocol."""
        from genaccel.evaluate.perplexity import WindowProtocol

        return WindowProtocol(self.window, self.stride or self.window, self.limit)

    def throughput(self) -> ThroughputProtocol:
        """The speed's protocol."""
        from genaccel.evaluate.throughput import ThroughputProtocol

        return ThroughputProtocol(self.batch, self.prompt_tokens, self.new_tokens, num_repeats=self.repeats)

    def named_tasks(self) -> dict[str, Path | None]:
        """The tasks in the order given, each with the file that its data come from, if one was named."""
        from genaccel.evaluate.questions import parse_tasks

        return parse_tasks(self.tasks)

    def perplexity_text(self) -> tuple[str, Path | None] | None:
        """Name and file of the text whose token perplexity is measured, or None."""
        if self.text is not None:
            return self.text, None
        tasks = self.named_tasks()
        if not tasks:
            return "pydoc", None
        return ("wikitext2", tasks["wikitext2"]) if "wikitext2" in tasks else None

    def questions(self, seed: int) -> list[Task]:
        """The multiple-choice tasks, read and checked; ``seed`` draws the solved examples."""
        from genaccel.evaluate.questions import CHOICE_TASKS, load_task

        return [
            load_task(name, self.data_dir, file, self.limit, self.num_fewshot, seed)
            for name, file in self.named_tasks().items()
            if name in CHOICE_TASKS
        ]

    def data(self, seed: int) -> dict[str, Identity]:
        """The text and the tasks as they are now: files change under a name."""
        from genaccel.corpora import load_corpus

        found: dict[str, Identity] = {}
        if text := self.perplexity_text():
            found["text"] = ("", load_corpus(text[0], "test", self.data_dir, text[1]).sha256, "")
        tasks = self.named_tasks()
        if "wikitext2" in tasks:
            found["wikitext2"] = ("", load_corpus("wikitext2", "test", self.data_dir, tasks["wikitext2"]).sha256, "")
        return found | {task.name: task.identity for task in self.questions(seed)}

    def check(self, max_positions: int | None, seed: int = FEWSHOT_SEED) -> None:
        """Raise ``UserError`` for whatever can be told to be wrong before a model is loaded."""
        self.windows().check(max_positions if self.perplexity_text() else None)
        for what, value, least in (
            ("few-shot examples", self.num_fewshot, 0),
            ("questions a batch", self.batch_size, 1),
        ):
            if value != "auto" and value < least:
                raise UserError(f"The number of {what} is {value}, but it must be at least {least}.", "")
        if self.speed:
            self.throughput().check(max_positions)
        self.data(seed)


@dataclass(frozen=True)
class EvaluateConfig:
    """What to evaluate and where.

    Parameters
    ----------
    model
        A checkpoint written by 'genaccel quantize', or any model that it takes.
    device
        Where to run: auto, cpu, cuda or hpu.
    baseline
        Record of another model judged alike; differences from it get an interval and McNemar's test.
    output
        Write the result of every window, page and question to this file (JSON lines).
    runs
        Folder for the record. An interrupted evaluation goes on from what it kept there.
    seed
        Seed of the few-shot examples; the default is lm-eval's.
    """

    model: str
    _: KW_ONLY
    device: str = "auto"
    baseline: Path | None = None
    output: Path | None = None
    runs: Path = Path("runs")
    seed: int = FEWSHOT_SEED
