"""Judge a model: perplexity, tasks, tokens per second and peak memory, as figures for a record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genaccel import console
from genaccel.evaluate.config import FEWSHOT_SEED
from genaccel.evaluate.config import EvaluateConfig as EvaluateConfig
from genaccel.evaluate.config import JudgeConfig as JudgeConfig
from genaccel.evaluate.judgement import Judgement as Judgement
from genaccel.evaluate.judgement import Resume as Resume
from genaccel.records import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from genaccel.devices import Device
    from genaccel.measure import Samples
    from genaccel.models import LoadedModel


def judge(
    loaded: LoadedModel, config: JudgeConfig, device: Device, *, seed: int = FEWSHOT_SEED, resume: Resume | None = None
) -> Judgement:
    """Measure ``loaded`` as ``config`` says; ``seed`` draws few-shot examples.

    With ``resume`` results are kept on disk as they come, and those of an interrupted run are used; the caller calls
    ``finish()`` on the judgement when its record is written.
    """
    from genaccel.corpora import load_corpus
    from genaccel.evaluate import tasks

    resume = resume or Resume()
    device.reuse_memory()
    device.reset_peak_memory()
    judgement = Judgement()
    if text := config.perplexity_text():
        judgement += _judge_text(loaded, config, text, resume)
    batch_size = None if config.batch_size == "auto" else config.batch_size
    named = config.named_tasks()
    if "wikitext2" in named:
        corpus = load_corpus("wikitext2", "test", config.data_dir, named["wikitext2"])
        judgement += tasks.judge_pages(loaded, corpus, config.limit, batch_size, resume)
    for task in config.questions(seed):
        judgement += tasks.judge_questions(loaded, task, batch_size, resume)
    if config.speed:
        judgement += _judge_speed(loaded, config, device)
    scope = "resident set of the process" if device.NAME == "cpu" else "allocated on the device"
    peak = device.peak_memory_bytes()
    figure = Figure("peak_memory_bytes", peak, "B", "measured", f"peak while judging, {scope}")
    return judgement + Judgement((figure,))


def _judge_text(loaded: LoadedModel, config: JudgeConfig, text: tuple[str, Path | None], resume: Resume) -> Judgement:
    """Token perplexity over windows; the interval is over windows."""
    from genaccel.corpora import load_corpus
    from genaccel.evaluate.intervals import exponential, ratio
    from genaccel.evaluate.perplexity import score_windows, tokenize_windows
    from genaccel.evaluate.tasks import figure_of

    name, file = text
    corpus = load_corpus(name, "test", config.data_dir, file)
    windows = tokenize_windows(loaded, corpus, config.windows())
    journal = resume.journal(windows.describe(), corpus.sha256)
    try:
        known = dict(journal.results)
        with console.progress(f"Perplexity of {loaded.name}", len(windows.items) - len(known)) as advance:
            scores = score_windows(loaded, windows, advance, known, journal.keep)
    except BaseException:
        journal.close()
        raise
    estimate = exponential(ratio(scores.nll_by_window, scores.tokens_by_window))
    details = {
        "text": {
            "name": corpus.name,
            "source": corpus.source,
            "sha256": corpus.sha256,
            "tokens": windows.num_tokens_in_text,
        },
        "scored_tokens": scores.num_tokens,
        "nll_by_window": list(scores.nll_by_window),
        "tokens_by_window": list(scores.tokens_by_window),
    }
    examples = tuple(
        {"task": "perplexity", "index": i, "log_likelihood": -nll, "tokens": n}
        for i, (nll, n) in enumerate(zip(scores.nll_by_window, scores.tokens_by_window, strict=True))
    )
    note = "95 % interval over windows (delta method)" if estimate.interval else ""
    figure = figure_of("perplexity", estimate, windows.describe(), note=note)
    return Judgement((figure,), details, (), examples, (journal,))


def _judge_speed(loaded: LoadedModel, config: JudgeConfig, device: Device) -> Judgement:
    from genaccel.evaluate.throughput import measure_throughput

    protocol = config.throughput()
    with console.status(f"Tokens per second of {loaded.name}"):
        rates = measure_throughput(loaded, device, protocol)
    figures = (
        _rate("prefill_tokens_per_second", rates.prefill, protocol.describe("prefill")),
        _rate("decode_tokens_per_second", rates.decode, protocol.describe("decode")),
    )
    return Judgement(figures, warnings=tuple(rates.warnings()))


def _rate(name: str, samples: Samples, protocol: str) -> Figure:
    return Figure(name, samples.median, "tokens/s", "measured", protocol, samples.values, samples.spread)
