"""Seconds to answer HellaSwag and BoolQ questions with SmolLM2-135M, beside lm-evaluation-harness in the same run.

    python bench/evaluate.py [--examples 200] [--repeats 3] [--threads N] [--batch-sizes 1 8]

Each contender is a process of its own that has loaded the same model in fp32 and is given the same questions; they work
in turn, never at once, on the same CPU and threads. All begin with texts: tokenizing counts, reading files and loading
the model do not. lm-eval runs with each of the batch sizes given; 1 is its default. With --bound the matrix products that the decoder layers
owe for the distinct tokens are timed too, alone, in batches of our size: no evaluation in fp32 that computes every layer of
every token can be sooner. Prints Markdown for
bench/RESULTS.md, with processor seconds beside wall seconds because machines are seldom quiet, and stops with an error
where predictions differ.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from genaccel import models
from genaccel.devices import get
from genaccel.evaluate import packing
from genaccel.evaluate.choice import answer, encode_questions, score_questions
from genaccel.evaluate.questions import Task, load_task
from genaccel.models import LoadedModel

Answers = list[list[float]]
MODEL = "smollm2-135m"
FLOORS = {"hellaswag": 3.0, "boolq": 2.0}
"""How much sooner than lm-eval at its defaults we want to be."""


def ours(loaded: LoadedModel, task: Task) -> Answers:
    """Log-likelihoods by genaccel."""
    found: dict[int, Any] = {}
    encoded = encode_questions(loaded, task.questions)
    sizes = [len(q.endings) for q in task.questions]
    score_questions(loaded, encoded, sizes, None, lambda _: False, found.__setitem__)
    return [list(found[i]) for i in range(len(sizes))]


BOUND = "matrix products alone"


def matrix_products(loaded: LoadedModel, task: Task) -> Answers:
    """Nothing but the products of the decoder layers' weights with as many rows as the questions have distinct tokens."""
    weights = [p for _, p in loaded.model.get_submodule(loaded.layout.layer_prefix).named_parameters() if p.ndim == 2]
    requests = [r for q in encode_questions(loaded, task.questions) for r in q.requests]
    left = sum(r.num_tokens for r in requests)
    inputs = {w.shape[1]: torch.randn(packing.AUTO_TOKENS["cpu"], w.shape[1]) for w in weights}
    with torch.inference_mode():
        while left > 0:
            rows = min(left, packing.AUTO_TOKENS["cpu"])
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]][:rows], weight)
            left -= rows
    return []


def contender(name: str, loaded: LoadedModel) -> Callable[[Task], Answers]:
    """What the process called ``name`` does with a task."""
    if name.startswith("genaccel"):
        get("cpu").reuse_memory()
        packing.shares_contexts(loaded.model)
        if "not shared" in name:
            setattr(loaded.model, packing._SHARES, False)
        return lambda task: ours(loaded, task)
    if name == BOUND:
        get("cpu").reuse_memory()
        return lambda task: matrix_products(loaded, task)

    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    peer = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=int(name.split()[-1]))

    def run(task: Task) -> Answers:
        pairs = [(q.context, f" {e}") for q in task.questions for e in q.endings]
        requests = [Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)]
        values = iter(peer.loglikelihood(requests, disable_tqdm=True))
        return [[float(next(values)[0]) for _ in q.endings] for q in task.questions]

    return run


def work(name: str, threads: int, pipe: Connection) -> None:
    """A contender's process: load, then answer every task that comes through the pipe, until None does."""
    torch.set_num_threads(threads)
    run = contender(name, models.load(models.resolve(MODEL)))
    while (task := pipe.recv()) is not None:
        wall, processor = time.perf_counter(), time.process_time()
        answers = run(task)
        pipe.send((time.perf_counter() - wall, time.process_time() - processor, answers))


def compare(task: Task, pipes: dict[str, Connection], repeats: int) -> bool:
    """Ask the contenders in turn and print a table; whether the floor against lm-eval's default was reached."""

    def ask(name: str, what: Task) -> tuple[float, float, Answers]:
        pipes[name].send(what)
        wall, processor, answers = pipes[name].recv()
        return wall, processor, answers

    for name in pipes:
        ask(name, Task(task.name, task.questions[:2], task.metrics, "", "", ""))
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in pipes}
    answers: dict[str, Answers] = {}
    for _ in range(repeats):
        for name in pipes:
            wall, processor, answers[name] = ask(name, task)
            samples[name].append((wall, processor))
    print(f"\n### {task.protocol}\n")
    print(
        "| | wall s, median | min - max | processor s | wall against genaccel | largest difference, nats | predictions |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    first = next(iter(pipes))
    base = statistics.median(w for w, _ in samples[first])
    for name, rows in samples.items():
        walls = [w for w, _ in rows]
        differing, largest = disagreement(task, answers[first], answers[name]) if answers[name] else (0, 0.0)
        print(
            f"| {name} | {statistics.median(walls):.1f} | {min(walls):.1f} - {max(walls):.1f} "
            f"| {statistics.median(p for _, p in rows):.1f} | {statistics.median(walls) / base:.2f}x "
            f"| {largest:.1e} | {f'{differing} differ' if differing else 'the same'} |",
            flush=True,
        )
        if differing:
            raise SystemExit(f"{name} and {first} disagree on {differing} questions")
    default = samples.get("lm-eval, batch 1")
    return default is None or statistics.median(w for w, _ in default) / base >= FLOORS[task.name]


def disagreement(task: Task, ours: Answers, theirs: Answers) -> tuple[int, float]:
    """(questions whose prediction by any metric differs, largest difference of a log-likelihood in nats)."""
    differing = sum(
        answer(q, a, task.metrics).predictions != answer(q, b, task.metrics).predictions
        for q, a, b in zip(task.questions, ours, theirs, strict=True)
    )
    pairs = [(x, y) for a, b in zip(ours, theirs, strict=True) for x, y in zip(a, b, strict=True)]
    return differing, max(abs(x - y) for x, y in pairs)


def main() -> None:
    """Measure and print everything; exit code 1 when a floor is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch-sizes", type=int, nargs="*", default=[1, 8])
    parser.add_argument("--tasks", nargs="*", default=["hellaswag", "boolq"])
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--data-dir", type=Path, default=None)
    options = parser.parse_args()
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = options.data_dir or Path(os.environ.get("GENACCEL_DATA", beside))
    names = ["genaccel", "genaccel, contexts not shared"] + [f"lm-eval, batch {size}" for size in options.batch_sizes]
    names += [BOUND] if options.bound else []
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    for name in names:
        pipes[name], far = spawn.Pipe()
        spawn.Process(target=work, args=(name, options.threads, far), daemon=True).start()
    print(f"{MODEL}, fp32, CPU, {options.threads} threads, {options.repeats} repeats in turn")
    reached = [
        compare(load_task(name, folder, None, options.examples, 0, 0), pipes, options.repeats) for name in options.tasks
    ]
    for pipe in pipes.values():
        pipe.send(None)
    raise SystemExit(0 if all(reached) else 1)


if __name__ == "__main__":
    main()
