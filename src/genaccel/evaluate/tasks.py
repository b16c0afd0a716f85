"""Tasks as figures: pages and questions scored with a journal, then counted, with error bars and what to say of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from genaccel import console
from genaccel.corpora import Corpus
from genaccel.evaluate.choice import answer, context_length, encode_questions, score_questions
from genaccel.evaluate.intervals import Estimate, accuracy, exponential, ratio
from genaccel.evaluate.journal import Journal
from genaccel.evaluate.judgement import Judgement, Resume
from genaccel.evaluate.packing import shares_context
from genaccel.evaluate.pages import Page, score_pages, split_pages
from genaccel.evaluate.perplexity import bos_that_the_tokenizer_adds
from genaccel.evaluate.questions import Metric, Task
from genaccel.models import LoadedModel
from genaccel.records import Figure

# --- Pages ------------------------------------------------------------------------------------------------------------


def judge_pages(
    loaded: LoadedModel, corpus: Corpus, limit: int | None, batch_size: int | None, resume: Resume
) -> Judgement:
    """lm-eval's word_perplexity, byte_perplexity and bits_per_byte of a WikiText corpus."""
    every = split_pages(corpus.text)
    pages = every[:limit]
    scope = f"all {len(every)} pages" if len(pages) == len(every) else f"first {len(pages)} pages"
    bos = "BOS added by the tokenizer" if bos_that_the_tokenizer_adds(loaded) else "no BOS but a prefix token"
    protocol = f"{corpus.name} by pages as lm-eval's wikitext, {scope}, window {context_length(loaded)}, {bos}"
    journal = resume.journal(protocol, corpus.sha256)
    with scored(f"Pages of {corpus.name}, {loaded.name}", len(pages), journal) as keep:
        num_tokens = score_pages(loaded, pages, batch_size, journal.results.__contains__, keep)
    log_likelihoods = [float(journal.results[i]) for i in range(len(pages))]
    return Judgement(
        _page_figures(pages, log_likelihoods, protocol),
        {
            "tasks": {
                "wikitext2": {
                    "protocol": protocol,
                    "source": corpus.source,
                    "sha256": corpus.sha256,
                    "interval": "95 %, over pages (delta method)",
                    "tokens": num_tokens,
                    "nll_by_page": [-v for v in log_likelihoods],
                    "words_by_page": [p.num_words for p in pages],
                    "bytes_by_page": [p.num_bytes for p in pages],
                }
            }
        },
        examples=tuple(
            {"task": "wikitext2", "index": i, "log_likelihood": v, "words": p.num_words, "bytes": p.num_bytes}
            for i, (v, p) in enumerate(zip(log_likelihoods, pages, strict=True))
        ),
        journals=(journal,),
    )


def _page_figures(pages: Sequence[Page], log_likelihoods: Sequence[float], protocol: str) -> tuple[Figure, ...]:
    nll = [-v for v in log_likelihoods]
    by_word, by_byte = ratio(nll, [p.num_words for p in pages]), ratio(nll, [p.num_bytes for p in pages])
    bits = Estimate(
        by_byte.value / math.log(2),
        by_byte.stderr and by_byte.stderr / math.log(2),
        by_byte.interval and (by_byte.interval[0] / math.log(2), by_byte.interval[1] / math.log(2)),
    )
    named = {"word_perplexity": exponential(by_word), "byte_perplexity": exponential(by_byte), "bits_per_byte": bits}
    return tuple(figure_of(name, estimate, protocol) for name, estimate in named.items())


# --- Questions --------------------------------------------------------------------------------------------------------


def judge_questions(loaded: LoadedModel, task: Task, batch_size: int | None, resume: Resume) -> Judgement:
    """Accuracies of a multiple-choice task."""
    with console.status(f"Tokenizing {task.name}"):
        encoded = encode_questions(loaded, task.questions)
    protocol = f"{task.protocol}, {'BOS added by the tokenizer' if bos_that_the_tokenizer_adds(loaded) else 'no BOS'}"
    journal = resume.journal(protocol, task.sha256, task.train_sha256)
    sizes = [len(q.endings) for q in task.questions]
    with scored(f"{task.name}, {loaded.name}", len(encoded), journal) as keep:
        score_questions(loaded, encoded, sizes, batch_size, journal.results.__contains__, keep)
    answers = [answer(q, journal.results[i], task.metrics) for i, q in enumerate(task.questions)]
    num_truncated = sum(e.num_truncated for e in encoded)
    num_without_tokens = sum(n - len(e.scored) for n, e in zip(sizes, encoded, strict=True))
    details = {
        "protocol": task.protocol,
        "source": task.source,
        "sha256": task.sha256,
        "train_sha256": task.train_sha256,
        "interval": "95 %, Wilson's score interval; stderr is the sample standard deviation over sqrt(n)",
        "contexts_truncated": num_truncated,
        "endings_without_tokens": num_without_tokens,
        "contexts_computed_once": sum(
            len(e.requests) == 1 and shares_context(loaded.model, e.requests[0]) for e in encoded
        ),
        # One character for each question, 1 when it was answered rightly: what a paired comparison needs.
        "correct": {m: "".join(str(int(a.correct[m])) for a in answers) for m in task.metrics},
    }
    warnings = []
    if num_truncated:
        warnings.append(
            f"{task.name}: {num_truncated} contexts were longer than the model's window and lost tokens on the left."
        )
    if num_without_tokens:
        warnings.append(f"{task.name}: {num_without_tokens} endings have no tokens; they count as never chosen.")
    return Judgement(
        tuple(
            figure_of(f"{task.name}_{m}", accuracy([a.correct[m] for a in answers]), _protocol(m, protocol))
            for m in task.metrics
        ),
        {"tasks": {task.name: details}},
        tuple(warnings),
        tuple(
            {
                "task": task.name,
                "index": i,
                "log_likelihoods": list(a.log_likelihoods),
                "answer": q.answer,
                "prediction": a.predictions,
                "correct": a.correct,
            }
            for i, (a, q) in enumerate(zip(answers, task.questions, strict=True))
        ),
        (journal,),
    )


METRICS: dict[Metric, str] = {
    "acc": "accuracy of the likeliest ending",
    "acc_norm": "accuracy of the likeliest ending per character (lm-eval's acc_norm)",
    "acc_bytes": "accuracy of the likeliest ending per byte (lm-eval's acc_bytes)",
}


def _protocol(metric: Metric, protocol: str) -> str:
    return f"{METRICS[metric]}, {protocol}"


# --- Both -------------------------------------------------------------------------------------------------------------


def figure_of(name: str, estimate: Estimate, protocol: str, unit: str = "1", note: str = "") -> Figure:
    """A measured figure with its error bar."""
    return Figure(
        name,
        estimate.value,
        unit,
        "measured",
        protocol,
        note=note,
        stderr=estimate.stderr,
        interval=estimate.interval,
    )


@contextmanager
def scored(text: str, total: int, journal: Journal) -> Iterator[Callable[[int, Any], None]]:
    """A progress bar around scoring; the yielded function keeps one result in ``journal`` and moves the bar.

    The bar counts what the journal lacks, so that its estimate of the time left is right from the first example on.
    When scoring is interrupted the journal is let go of, not lost.
    """
    try:
        with console.progress(text, total - len(journal.results)) as advance:

            def keep(index: int, result: Any) -> None:
                journal.keep(index, result)
                advance("")

            yield keep
    except BaseException:
        journal.close()
        raise
