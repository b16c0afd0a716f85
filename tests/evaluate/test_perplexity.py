"""Perplexity against a plain transformers loop: whole logits, cross-entropy, nothing clever."""

from __future__ import annotations

import math

import pytest
import torch

from genaccel import devices, models
from genaccel.corpora import Corpus, load_corpus
from genaccel.errors import UserError
from genaccel.evaluate.perplexity import WindowProtocol, score_windows, tokenize_windows
from genaccel.evaluate.scoring import has_plain_head
from genaccel.plans import PrecisionPlan
from genaccel.quantize import checkpoint

TEXT = "It was the best of times, it was the worst of times. " * 12


def corpus(text: str = TEXT) -> Corpus:
    return Corpus("text", text, "here", "")


@torch.inference_mode()
def plain_loop(
    model, tokens: torch.Tensor, window: int, stride: int, limit: int | None, bos: list[int]
) -> tuple[float, int]:
    """(perplexity, scored tokens): every token once, in the first window that holds it with a context."""
    total, count, scored, done = 0.0, 0, 0, 0
    for start in range(0, len(tokens), stride):
        piece = tokens[start : start + window - len(bos)]
        ids = torch.cat([torch.tensor(bos, dtype=torch.long), piece])
        log_p = model(ids[None]).logits[0].double().log_softmax(-1)
        added = 0
        for i in range(1, len(ids)):
            if start + i - len(bos) >= scored:
                total -= float(log_p[i - 1, ids[i]])
                added += 1
        count, done, scored = count + added, done + (added > 0), start + len(piece)
        if scored == len(tokens) or done == limit:
            break
    return math.exp(total / count), count


@pytest.mark.parametrize(
    ("window", "stride", "limit"), [(64, 64, None), (64, 64, 3), (64, 24, None), (64, 1, 5), (33, 20, 4)]
)
def test_perplexity_equals_a_plain_loop(tiny_model, window, stride, limit):
    loaded = models.load(models.resolve(str(tiny_model)))
    windows = tokenize_windows(loaded, corpus(), WindowProtocol(window, stride, limit))
    scores = score_windows(loaded, windows)
    tokens = torch.tensor(loaded.tokenizer(TEXT, add_special_tokens=False).input_ids)
    bos = [0] if "untied" in str(tiny_model) else []
    expected, count = plain_loop(loaded.model, tokens, window, stride, limit, bos)
    assert scores.num_tokens == count
    assert scores.perplexity == pytest.approx(expected, rel=1e-4)
    assert ("BOS before each window" if bos else "no BOS") in windows.describe()


def test_the_shortcut_past_the_head_is_only_taken_where_it_holds(tiny_llama, tiny_gemma2):
    assert has_plain_head(models.load(models.resolve(str(tiny_llama))).model)
    assert not has_plain_head(models.load(models.resolve(str(tiny_gemma2))).model)


@pytest.mark.parametrize(
    ("protocol", "sentence"),
    [
        (WindowProtocol(1, 1), "nothing to predict"),
        (WindowProtocol(64, 0), "stride is 0"),
        (WindowProtocol(64, 65), "stride is 65"),
        (WindowProtocol(64, 64, 0), "limit is 0"),
        (WindowProtocol(129, 129), "longer than the model's context of 128"),
    ],
)
def test_a_protocol_that_makes_no_sense_is_refused(tiny_llama, protocol, sentence):
    loaded = models.load(models.resolve(str(tiny_llama)))
    with pytest.raises(UserError, match=sentence):
        tokenize_windows(loaded, corpus(), protocol)


def test_a_text_shorter_than_a_window_is_refused(tiny_llama):
    loaded = models.load(models.resolve(str(tiny_llama)))
    with pytest.raises(UserError, match="has 5 tokens, fewer than one window of 64"):
        tokenize_windows(loaded, corpus("hello"), WindowProtocol(64, 64))


def test_a_model_that_computes_nonsense_is_not_scored(tiny_llama):
    loaded = models.load(models.resolve(str(tiny_llama)))
    torch.nn.init.constant_(loaded.model.model.norm.weight, float("nan"))
    with pytest.raises(UserError, match="log-likelihood of nan in window 1"):
        score_windows(loaded, tokenize_windows(loaded, corpus(), WindowProtocol(64, 64)))


# --- The real model on the real text ----------------------------------------------------------------------------------


def real_perplexity(name: str, data_dir, limit: int, formats: dict[str, str] | None = None) -> float:
    loaded = models.load(models.resolve(name))
    if formats:
        plan = PrecisionPlan(name, "cpu", "by hand", formats)
        checkpoint.quantize_in_memory(loaded, plan, "fake", devices.get("cpu"))
    windows = tokenize_windows(loaded, load_corpus("wikitext2", "test", data_dir), WindowProtocol(1024, 1024, limit))
    assert windows.num_tokens_in_text == 303_415
    return score_windows(loaded, windows).perplexity


@pytest.mark.data
@pytest.mark.slow
def test_smollm2_on_wikitext2_equals_a_plain_loop(data_dir):
    loaded = models.load(models.resolve("smollm2-135m"))
    text = (data_dir / "wikitext-2" / "wiki.test.raw").read_bytes().decode()
    tokens = torch.tensor(loaded.tokenizer(text, add_special_tokens=False).input_ids)
    expected, count = plain_loop(loaded.model, tokens[: 3 * 1024], 1024, 1024, 3, [])
    assert count == 3 * 1023
    assert real_perplexity("smollm2-135m", data_dir, 3) == pytest.approx(expected, rel=1e-5)


@pytest.mark.data
@pytest.mark.slow
def test_four_bits_cost_nothing_on_the_grid_and_much_off_it(data_dir):
    """Why the de-gridded model exists: the published weights were rounded to just these levels before."""
    int4 = {"model.embed_tokens": "fp32", "model.layers": "int4_g32"}
    plain = real_perplexity("smollm2-135m", data_dir, 1)
    assert real_perplexity("smollm2-135m-degridded", data_dir, 1) == pytest.approx(plain, rel=1e-4)
    assert real_perplexity("smollm2-135m", data_dir, 1, int4) == pytest.approx(plain, rel=1e-3)
    assert real_perplexity("smollm2-135m-degridded", data_dir, 1, int4) > 1.3 * plain
