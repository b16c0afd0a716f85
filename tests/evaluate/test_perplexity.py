"""Perplexity against a plain transformers loop: whole logits, cross-entropy, nothing clever."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BatchEncoding

from genaccel import devices, models
from genaccel.corpora import Corpus, load_corpus
from genaccel.errors import UserError
from genaccel.evaluate.perplexity import WindowProtocol, score_windows, tokenize_windows
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
    for start in range(0, len(tokens), min(stride, window - len(bos))):
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


@pytest.mark.parametrize(("window", "stride"), [(64, 64), (64, 24)])
def test_a_model_that_knows_nothing_has_the_vocabularys_perplexity(tiny_llama_untied, window, stride):
    """Equal logits: every token costs log 258, however windows are cut."""
    loaded = models.load(models.resolve(str(tiny_llama_untied)))
    torch.nn.init.zeros_(loaded.model.lm_head.weight)
    scores = score_windows(loaded, tokenize_windows(loaded, corpus(), WindowProtocol(window, stride)))
    assert scores.perplexity == pytest.approx(258, rel=1e-6)
    assert scores.nll_by_window == pytest.approx([n * math.log(258) for n in scores.tokens_by_window], rel=1e-6)


@given(
    length=st.integers(10, 90),
    window=st.integers(2, 10),
    data=st.data(),
    adds_bos=st.booleans(),
)
def test_windows_score_each_token_once_with_the_context_they_promise(tiny_llama, length, window, data, adds_bos):
    """Overlapping windows leave no token out but the first, and score the last ``stride`` tokens of each."""
    stride = data.draw(st.integers(1, window if adds_bos else window - 1))
    loaded = models.load_tokenizer(models.resolve(str(tiny_llama)))
    bos = SimpleNamespace(tokenizer=PlainTokenizer(loaded, 0 if adds_bos else None), max_positions=None)
    text = "".join(chr(33 + i) for i in range(length))
    windows = tokenize_windows(bos, corpus(text), WindowProtocol(window, stride))
    tokens = loaded(text, add_special_tokens=False).input_ids
    scored = []
    for ids, targets in windows.items:
        row = ids[0].tolist()
        assert len(row) <= window
        assert (row[0] == 0) == adds_bos
        assert 0 < targets < len(row)
        start = tokens.index(row[adds_bos])
        assert row[adds_bos:] == tokens[start : start + len(row) - adds_bos]
        scored += row[-targets:]
    assert scored == tokens[0 if adds_bos else 1 :]
    assert windows.adds_bos == adds_bos


class PlainTokenizer:
    """A tokenizer that adds the given BOS, or none."""

    def __init__(self, inner, bos: int | None):
        self.inner, self.bos_token_id = inner, bos

    def __call__(self, text, add_special_tokens=True, **options):
        ids = self.inner(text, add_special_tokens=False).input_ids
        first = [self.bos_token_id] if add_special_tokens and self.bos_token_id is not None else []
        return BatchEncoding({"input_ids": first + ids})


@pytest.mark.parametrize(
    ("window", "stride", "limit", "tokens_by_window"),
    [
        (64, 64, None, (63,) * 9 + (59,)),  # 636 tokens, the last 60 alone
        (64, 64, 2, (63, 63)),
        (106, 106, None, (105,) * 6),  # no tail
        (127, 127, None, (126,) * 5),  # a tail of one token has nothing to predict
        (64, 32, 3, (63, 32, 32)),
        (100, 60, None, (99, *(60,) * 8, 56)),
    ],
)
def test_tails_and_limits_by_hand(tiny_llama, window, stride, limit, tokens_by_window):
    loaded = models.load(models.resolve(str(tiny_llama)))
    windows = tokenize_windows(loaded, corpus(), WindowProtocol(window, stride, limit))
    assert len(TEXT) == windows.num_tokens_in_text == 636
    assert tuple(n for _, n in windows.items) == tokens_by_window


def test_known_windows_are_not_scored_again(tiny_llama):
    loaded = models.load(models.resolve(str(tiny_llama)))
    windows = tokenize_windows(loaded, corpus(), WindowProtocol(64, 64, 4))
    kept: dict[int, float] = {}
    shown: list[str] = []
    whole = score_windows(loaded, windows, shown.append, keep=kept.__setitem__)
    assert list(kept.values()) == list(whole.nll_by_window)
    assert shown[-1] == f"perplexity {whole.perplexity:.3f}"
    known = {1: 7.0, 2: kept[2]}
    again: dict[int, float] = {}
    resumed = score_windows(loaded, windows, known=known, keep=again.__setitem__)
    assert again == {0: kept[0], 3: kept[3]}
    assert resumed.nll_by_window == (kept[0], 7.0, kept[2], kept[3])


@pytest.mark.parametrize(
    ("limit", "stride", "name"),
    [
        (None, 64, "token perplexity, text, window 64, stride 64, no BOS, whole text, 10 windows"),
        (2, 32, "token perplexity, text, window 64, stride 32, no BOS, first 2 windows"),
    ],
)
def test_the_protocols_name_holds_every_choice(tiny_llama, limit, stride, name):
    loaded = models.load(models.resolve(str(tiny_llama)))
    assert tokenize_windows(loaded, corpus(), WindowProtocol(64, stride, limit)).describe() == name


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
    with pytest.raises(UserError, match="has 63 tokens, fewer than one window of 64"):
        tokenize_windows(loaded, corpus("x" * 63), WindowProtocol(64, 64))
    assert len(tokenize_windows(loaded, corpus("x" * 64), WindowProtocol(64, 64)).items) == 1


def test_a_model_that_computes_nonsense_is_not_scored(tiny_llama):
    loaded = models.load(models.resolve(str(tiny_llama)))
    torch.nn.init.constant_(loaded.model.model.norm.weight, float("nan"))
    with pytest.raises(UserError, match="log-likelihood of nan in window 1"):
        score_windows(loaded, tokenize_windows(loaded, corpus(), WindowProtocol(64, 64)))


# --- The real model on the real text ----------------------------------------------------------------------------------


def real_perplexity(name: str, data_dir, protocol: WindowProtocol, formats: dict[str, str] | None = None) -> float:
    loaded = models.load(models.resolve(name))
    if formats:
        plan = PrecisionPlan(name, "cpu", "by hand", formats)
        checkpoint.quantize_in_memory(loaded, plan, "fake", devices.get("cpu"))
    windows = tokenize_windows(loaded, load_corpus("wikitext2", "test", data_dir), protocol)
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
    assert real_perplexity("smollm2-135m", data_dir, WindowProtocol(1024, 1024, 3)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.data
@pytest.mark.slow
def test_four_bits_cost_nothing_on_the_grid_and_much_off_it(data_dir):
    """Why the de-gridded model exists: the published weights were rounded to just these levels before."""
    int4 = {"model.embed_tokens": "fp32", "model.layers": "int4_g32"}
    short = WindowProtocol(512, 512, 1)
    plain = real_perplexity("smollm2-135m", data_dir, short)
    assert real_perplexity("smollm2-135m-degridded", data_dir, short) == pytest.approx(plain, rel=1e-4)
    assert real_perplexity("smollm2-135m", data_dir, short, int4) == pytest.approx(plain, rel=1e-3)
    assert real_perplexity("smollm2-135m-degridded", data_dir, short, int4) > 1.3 * plain
