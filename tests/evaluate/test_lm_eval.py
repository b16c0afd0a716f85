"""EleutherAI's lm-evaluation-harness on the same examples: every log-likelihood, prediction and metric must be its.

lm-eval gets local files through task files written here; its wording for the tasks is its own, taken from the package.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import replace

import pytest

from genaccel import models
from genaccel.corpora import Corpus, load_corpus, read_rows
from genaccel.evaluate.judgement import Resume
from genaccel.evaluate.pages import detokenize, split_pages
from genaccel.evaluate.questions import clean, load_task
from genaccel.evaluate.tasks import judge_pages, judge_questions

lm_eval = pytest.importorskip("lm_eval")

TASKS = {
    "ours_hellaswag": """
        dataset_path: json
        dataset_kwargs: {data_files: {validation: "FOLDER/hellaswag.jsonl"}}
        output_type: multiple_choice
        validation_split: validation
        doc_to_text: "{{query}}"
        doc_to_target: label
        doc_to_choice: endings
        metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
        """,
    "ours_original_hellaswag": """
        dataset_path: json
        dataset_kwargs: {data_files: {validation: "FOLDER/original.jsonl"}}
        output_type: multiple_choice
        validation_split: validation
        process_docs: !function theirs.process_docs
        doc_to_text: "{{query}}"
        doc_to_target: "{{label}}"
        doc_to_choice: choices
        metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]
        """,
    "ours_boolq": """
        dataset_path: json
        dataset_kwargs: {data_files: {test: "FOLDER/boolq.jsonl"}}
        output_type: multiple_choice
        test_split: test
        fewshot_split: test
        doc_to_text: "{{passage}}\\nQuestion: {{question}}?\\nAnswer:"
        doc_to_target: label
        doc_to_choice: ["no", "yes"]
        metric_list: [{metric: acc}]
        """,
    "ours_wikitext": """
        dataset_path: json
        dataset_kwargs: {data_files: {test: "FOLDER/pages.jsonl"}}
        output_type: loglikelihood_rolling
        test_split: test
        doc_to_text: ""
        doc_to_target: !function theirs.wikitext_detokenizer
        process_results: !function theirs.process_results
        metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
        """,
}
THEIRS = """
from lm_eval.tasks.hellaswag.utils import process_docs
from lm_eval.tasks.wikitext.preprocess_wikitext import process_results, wikitext_detokenizer
"""


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run_lm_eval(folder, monkeypatch, loaded, task, batch_size=8, max_length=None, num_fewshot=0, seed=0):
    """Results and samples of one of ``TASKS`` whose data lie in ``folder``."""
    import datasets
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder / "cache")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    text = f"task: {task}\n" + textwrap.dedent(TASKS[task]).replace("FOLDER", str(folder))
    (folder / f"{task}.yaml").write_text(text)
    (folder / "theirs.py").write_text(THEIRS)
    lm = HFLM(pretrained=loaded.model, tokenizer=loaded.tokenizer, batch_size=batch_size, max_length=max_length)
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    # Not simple_evaluate: it goes on to describe the machine by asking pip, git and the hub, which may take for ever.
    chosen = manager.load([task])
    for one in chosen["tasks"].values():
        one.set_config(key="num_fewshot", value=num_fewshot)
        one.set_fewshot_seed(seed=seed)
    found = lm_eval.evaluate(lm, chosen, bootstrap_iters=0, log_samples=True)
    return found["results"][task], sorted(found["samples"][task], key=lambda s: s["doc_id"])


def assert_same_answers(ours, task, results, samples):
    """Log-likelihoods to 1e-3, predictions through the metrics of every example, and metrics with their stderr."""
    assert len(ours.examples) == len(samples)
    for example, sample in zip(ours.examples, samples, strict=True):
        theirs = [float(pair[0][0]) for pair in sample["resps"]]
        assert example["log_likelihoods"] == pytest.approx(theirs, abs=1e-3)
        assert max(range(len(theirs)), key=theirs.__getitem__) == example["prediction"]["acc"]
        assert {m: float(c) for m, c in example["correct"].items()} == {m: sample[m] for m in task.metrics}
    for figure, metric in zip(ours.figures, task.metrics, strict=True):
        assert figure.name == f"{task.name}_{metric}"
        assert figure.value == pytest.approx(results[f"{metric},none"], abs=1e-12)
        if results.get(f"{metric}_stderr,none") != "N/A":
            assert figure.stderr == pytest.approx(results[f"{metric}_stderr,none"], rel=1e-9)


@pytest.fixture(scope="module")
def smollm2():
    return models.load(models.resolve("smollm2-135m"))


@pytest.mark.slow
@pytest.mark.data
def test_hellaswag_equals_lm_eval(smollm2, data_dir, tmp_path, monkeypatch):
    """The first 25 rows, 50 brief ones and 25 with letters of several bytes: characters are no bytes there."""
    rows = read_rows(data_dir / "hellaswag" / "hellaswag_val.jsonl").items
    brief = [r for r in rows[25:] if len(r["query"]) < 120 and all(e.isascii() for e in r["endings"])]
    unusual = [r for r in rows[25:] if not all(e.isascii() for e in r["endings"])]
    unusual.sort(key=lambda r: len(r["query"]) + sum(map(len, r["endings"])))
    file = write_rows(tmp_path / "hellaswag.jsonl", [*rows[:25], *brief[:50], *unusual[:25]])
    task = load_task("hellaswag", None, file, None, 0, 0)
    ours = judge_questions(smollm2, task, None, Resume())
    assert ours.details["tasks"]["hellaswag"]["contexts_computed_once"]
    results, samples = run_lm_eval(tmp_path, monkeypatch, smollm2, "ours_hellaswag")
    assert len(samples) == 100
    assert_same_answers(ours, task, results, samples)


@pytest.mark.slow
@pytest.mark.data
def test_boolq_equals_lm_eval(smollm2, data_dir, tmp_path, monkeypatch):
    rows = read_rows(data_dir / "boolq" / "dev.jsonl").items
    short = [r for r in rows if len(r["passage"]) < 400]
    file = write_rows(tmp_path / "boolq.jsonl", [r | {"label": int(r["answer"])} for r in short[:100]])
    task = load_task("boolq", None, file, None, 0, 0)
    ours = judge_questions(smollm2, task, None, Resume())
    results, samples = run_lm_eval(tmp_path, monkeypatch, smollm2, "ours_boolq")
    assert len(samples) == 100
    assert_same_answers(ours, task, results, samples)


@pytest.mark.slow
@pytest.mark.data
def test_word_perplexity_equals_lm_eval(smollm2, data_dir, tmp_path, monkeypatch):
    """Two pages of real text in windows of 256 tokens, so that a page takes several."""
    corpus = load_corpus("wikitext2", "test", data_dir)
    pages = sorted(split_pages(corpus.text), key=lambda p: len(p.text))[1:3]
    assert all(p.num_words > 200 for p in pages)
    write_rows(tmp_path / "pages.jsonl", [{"page": p.text} for p in pages])
    windowed = replace(smollm2, layout=replace(smollm2.layout, max_positions=256))
    ours = judge_pages(windowed, replace(corpus, text="\n".join(p.text for p in pages)), None, None, Resume())
    results, samples = run_lm_eval(tmp_path, monkeypatch, smollm2, "ours_wikitext", 1, max_length=256)
    for example, sample in zip(ours.examples, samples, strict=True):
        assert (example["words"], example["bytes"]) == (sample["word_perplexity"][1], sample["byte_perplexity"][1])
        assert example["log_likelihood"] == pytest.approx(sample["word_perplexity"][0], rel=1e-5)
    for figure in ours.figures:
        assert figure.value == pytest.approx(results[f"{figure.name},none"], rel=1e-4)


@pytest.mark.parametrize("family", ["tiny_llama", "tiny_llama_untied", "tiny_gemma2", "tiny_gpt2"])
def test_pages_equal_lm_eval(family, request, tmp_path, monkeypatch):
    """Pages of one to several windows of 128 tokens; with a tokenizer that adds a BOS, that BOS is scored too."""
    loaded = models.load(models.resolve(str(request.getfixturevalue(family))))
    text = "".join(f" = Page {i} = \n \n" + f" Some words ; number @-@ {i} . \n" * (3 * i + 1) for i in range(5))
    write_rows(tmp_path / "pages.jsonl", [{"page": p.text} for p in split_pages(text)])
    ours = judge_pages(loaded, Corpus("wikitext2", text, "here", ""), None, None, Resume())
    results, samples = run_lm_eval(tmp_path, monkeypatch, loaded, "ours_wikitext", 1)
    theirs = [s["word_perplexity"][0] for s in samples]
    assert [e["log_likelihood"] for e in ours.examples] == pytest.approx(theirs, rel=1e-5)
    for figure in ours.figures:
        assert figure.value == pytest.approx(results[f"{figure.name},none"], rel=1e-4)


QUESTIONS = [
    {
        "passage": f"Passage {i} says that {'yes' if i % 3 else 'no'}." * (1 + i % 4),
        "question": f"is it {i}",
        "label": i % 2,
    }
    for i in range(12)
]


@pytest.mark.parametrize("family", ["tiny_llama", "tiny_llama_untied", "tiny_gemma2", "tiny_gpt2"])
def test_truncated_few_shot_boolq_equals_lm_eval(family, request, tmp_path, monkeypatch):
    """Few-shot prompts that overflow a window of 128 tokens, with and without BOS, soft cap and sliding window."""
    loaded = models.load(models.resolve(str(request.getfixturevalue(family))))
    file = write_rows(tmp_path / "boolq.jsonl", QUESTIONS)
    task = load_task("boolq", None, file, None, 1, 7)
    ours = judge_questions(loaded, task, None, Resume())
    results, samples = run_lm_eval(tmp_path, monkeypatch, loaded, "ours_boolq", num_fewshot=1, seed=7)
    assert [s["arguments"][0][0] for s in samples] == [q.context for q in task.questions]
    assert_same_answers(ours, task, results, samples)
    assert ours.details["tasks"]["boolq"]["contexts_truncated"] > 0


ORIGINAL = [
    {
        "activity_label": "Cooking",
        "ctx_a": "[header] How to cook rice [title] Wash it well.  [step] Then",
        "ctx_b": "the PAN [substeps] heats",
        "endings": ["boils [step] over.", " runs  away", "[title] sleeps", "counts to ten [x] twice"],
        "label": str(i % 4),
    }
    for i in range(5)
]


@pytest.mark.parametrize("family", ["tiny_llama", "tiny_llama_untied", "tiny_gemma2", "tiny_gpt2", "tiny_qwen2"])
def test_original_hellaswag_equals_lm_eval(family, request, tmp_path, monkeypatch):
    """Cleaning, and packed rows on several architectures; Gemma2's window of 16 tokens forbids packing."""
    loaded = models.load(models.resolve(str(request.getfixturevalue(family))))
    file = write_rows(tmp_path / "original.jsonl", ORIGINAL)
    task = load_task("hellaswag", None, file, None, 0, 0)
    ours = judge_questions(loaded, task, None, Resume())
    results, samples = run_lm_eval(tmp_path, monkeypatch, loaded, "ours_original_hellaswag")
    assert_same_answers(ours, task, results, samples)


@pytest.mark.parametrize(
    "text",
    [
        "[header] a [title] b  c",
        "  plain ",
        "x [] y [step]",
        "a [title]b[ title]",
        "[[nested] left]",
        "many     spaces",
    ],
)
def test_cleaning_equals_lm_eval(text):
    from lm_eval.tasks.hellaswag.utils import preprocess

    assert clean(text) == preprocess(text)


@pytest.mark.data
def test_detokenizing_equals_lm_eval(data_dir):
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    pages = split_pages(load_corpus("wikitext2", "test", data_dir).text)
    assert len(pages) == 62  # rows of EleutherAI/wikitext_document_level's test split
    odd = [
        "a 's b ; c",
        "dogs ' x",
        "it /' 5/ is",
        "( a ) [ b ] { c }",
        "' a ' \" b \"",
        "20 ° C N 5 = = x = =\n ! ? :",
    ]
    for page in [p.text for p in pages] + odd:
        assert detokenize(page) == wikitext_detokenizer({"page": page})
