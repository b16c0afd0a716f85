"""Questions by likelihood: packed rows against plain ones, truncation, endings without tokens, ties."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genaccel import models
from genaccel.errors import UserError
from genaccel.evaluate import packing
from genaccel.evaluate.choice import answer, context_length, encode_questions, score_questions
from genaccel.evaluate.packing import Request, plan_batches, score_requests, shares_contexts
from genaccel.evaluate.questions import Question

from ..conftest import byte_tokenizer


@pytest.fixture
def loaded(tiny_model):
    return models.load(models.resolve(str(tiny_model)))


@pytest.fixture
def llama(tiny_llama):
    return models.load(models.resolve(str(tiny_llama)))


def scores_of(loaded, questions, batch_size=None):
    """Log-likelihoods by question."""
    found = {}
    encoded = encode_questions(loaded, questions)
    sizes = [len(q.endings) for q in questions]
    score_questions(loaded, encoded, sizes, batch_size, lambda _: False, found.__setitem__)
    return [found[i] for i in range(len(questions))]


@torch.no_grad()
def plain_log_likelihood(model, context, ending):
    """The definition: one sequence, the model's own forward, log p of every token of the ending."""
    ids = torch.tensor([[*context, *ending]])
    log_p = model(input_ids=ids).logits[0].double().log_softmax(-1)
    return sum(float(log_p[len(context) - 1 + i, token]) for i, token in enumerate(ending))


REQUESTS = [
    Request((5, 6, 7, 8, 9), ((10, 11, 12), (13, 14), (15, 16, 17, 18), (19,))),
    Request((50,), ((51, 52), (53, 54))),
    Request(tuple(range(60, 90)), ((3,), (4,))),
    Request((7, 7, 7), ((7, 7, 7), (7, 7, 7), (7, 7, 8))),
    Request(tuple(range(100, 120)), ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10),)),
]


@pytest.mark.parametrize("batch_size", [None, 1, 2, 100])
def test_packed_rows_equal_plain_sequences(loaded, batch_size):
    found = dict(pair for batch in score_requests(loaded.model, REQUESTS, batch_size) for pair in batch)
    for index, request in enumerate(REQUESTS):
        expected = [plain_log_likelihood(loaded.model, request.context, e) for e in request.endings]
        assert found[index] == pytest.approx(expected, abs=1e-4)


def test_contexts_are_shared_where_the_model_allows_it(loaded):
    """All tiny models take the mask; Gemma2's window of 16 tokens forbids it for longer rows only."""
    assert shares_contexts(loaded.model)
    long = Request(tuple(range(20)), ((1, 2), (3, 4)))
    assert len(packing._rows(loaded.model, long)) == (2 if "Gemma2" in type(loaded.model).__name__ else 1)


def test_a_model_that_ignores_the_mask_gets_plain_rows(llama, monkeypatch):
    decoder = llama.model.base_model
    forward = decoder.forward
    monkeypatch.setattr(decoder, "forward", lambda *a, attention_mask=None, position_ids=None, **k: forward(*a, **k))
    assert not shares_contexts(llama.model)
    found = dict(pair for batch in score_requests(llama.model, REQUESTS) for pair in batch)
    expected = [plain_log_likelihood(llama.model, REQUESTS[0].context, e) for e in REQUESTS[0].endings]
    assert found[0] == pytest.approx(expected, abs=1e-4)


def test_a_model_that_refuses_the_mask_gets_plain_rows(llama, monkeypatch):
    decoder = llama.model.base_model
    forward = decoder.forward

    def refuse(*args, position_ids=None, **kwargs):
        if position_ids is not None:
            raise TypeError("unexpected argument position_ids")
        return forward(*args, **kwargs)

    monkeypatch.setattr(decoder, "forward", refuse)
    assert not shares_contexts(llama.model)


def test_scores_do_not_depend_on_batch_size(loaded):
    questions = [
        Question(
            f"Question {i}: " + "and so on " * (i % 5), tuple("abcdefgh"[j] * (1 + (i + j) % 7) for j in range(4)), 0
        )
        for i in range(13)
    ]
    alone = scores_of(loaded, questions, 1)
    for batch_size in (None, 2, 5, 13):
        for one, other in zip(alone, scores_of(loaded, questions, batch_size), strict=True):
            assert other == pytest.approx(one, abs=1e-5 * max(abs(v) for v in one))


@given(st.lists(st.integers(1, 60), max_size=40), st.integers(1, 7) | st.none(), st.integers(1, 200) | st.none())
def test_batches_hold_every_row_once_and_keep_the_bounds(lengths, rows, tokens):
    batches = plan_batches(lengths, rows, tokens)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert rows is None or len(batch) <= rows
        assert tokens is None or len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= tokens
    longest = [max(lengths[i] for i in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)


def test_batches_that_do_not_fit_in_memory_are_halved(llama, monkeypatch):
    real = packing._score_batch
    sizes = []

    def cramped(model, rows, *args):
        sizes.append(len(rows))
        if len(rows) > 2:
            raise torch.OutOfMemoryError("no memory")
        return real(model, rows, *args)

    expected = [pair for batch in score_requests(llama.model, REQUESTS, 100) for pair in batch]
    monkeypatch.setattr(packing, "_score_batch", cramped)
    assert [pair for batch in score_requests(llama.model, REQUESTS, 100) for pair in batch] == [
        (index, pytest.approx(sums, abs=1e-4)) for index, sums in expected
    ]
    assert max(sizes) == 3  # rows with a mask are batched apart from those without


def test_one_row_that_does_not_fit_is_an_error(llama, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(packing, "_score_batch", full)
    with pytest.raises(UserError, match="does not fit"):
        list(score_requests(llama.model, REQUESTS[1:2]))


# --- Tokens -----------------------------------------------------------------------------------------------------------


def test_a_long_context_loses_tokens_on_its_left(llama):
    """Window of 128: an ending of 4 bytes and a space leaves room for 124 tokens of context (its last is no input)."""
    question = Question("x" * 300 + "y" * 124, ("abcd", "abcdef"), 0)
    (encoded,) = encode_questions(llama, [question])
    assert encoded.num_truncated == 2
    assert [len(r.context) for r in encoded.requests] == [124, 122]
    assert all(len(r.context) + len(r.endings[0]) - 1 == 128 for r in encoded.requests)
    (found,) = scores_of(llama, [question])
    for request, value in zip(encoded.requests, found, strict=True):
        assert value == pytest.approx(plain_log_likelihood(llama.model, request.context, request.endings[0]), abs=1e-4)


def test_only_the_longer_ending_truncates(llama):
    (encoded,) = encode_questions(llama, [Question("x" * 124, ("abcd", "abcdef"), 0)])
    assert encoded.num_truncated == 1


def test_endings_that_cut_the_context_alike_share_it(llama):
    """Four endings of two lengths: two contexts, each computed once; scores are back in the endings' order."""
    question = Question("x" * 300 + "y" * 124, ("abcd", "abcdef", "efgh", "efghij"), 0)
    (encoded,) = encode_questions(llama, [question])
    assert [(len(r.context), len(r.endings)) for r in encoded.requests] == [(124, 2), (122, 2)]
    assert encoded.num_truncated == 4
    (found,) = scores_of(llama, [question])
    alone = [scores_of(llama, [Question(question.context, (e, e), 0)])[0][0] for e in question.endings]
    assert found == pytest.approx(alone, abs=1e-4)


@pytest.mark.parametrize(
    ("positions", "told", "expected"), [(128, 100, 128), (None, 100, 100), (None, int(1e30), 2048)]
)
def test_the_context_length_is_the_models_or_the_tokenizers(llama, positions, told, expected):
    unsure = replace(llama, layout=replace(llama.layout, max_positions=positions))
    unsure.tokenizer.model_max_length = told
    assert context_length(unsure) == expected


def test_an_ending_longer_than_the_window_is_an_error(llama):
    with pytest.raises(UserError, match=r"question 2 has 201 tokens, the model's context has 128"):
        encode_questions(llama, [Question("a", ("b", "c"), 0), Question("a", ("b" * 200, "c"), 0)])


def test_an_ending_of_no_tokens_is_never_chosen(llama):
    """A tokenizer that drops trailing blanks leaves the empty ending no tokens; its sum of 0 would always win."""

    class Trimming:
        def __init__(self, inner):
            self.inner = inner
            self.bos_token_id, self.eos_token_id = inner.bos_token_id, inner.eos_token_id
            self.decode = inner.decode

        def __call__(self, texts, **options):
            return self.inner([t.rstrip() for t in texts] if isinstance(texts, list) else texts.rstrip(), **options)

    trimming = replace(llama, tokenizer=Trimming(byte_tokenizer()))
    questions = [Question("context", ("", "a"), 0), Question("context", ("", ""), 1)]
    first, second = scores_of(trimming, questions)
    assert first[0] is None
    assert first[1] < 0
    assert second == (None, None)
    found = answer(questions[0], first, ("acc", "acc_norm", "acc_bytes"))
    assert set(found.predictions.values()) == {1}
    assert not any(answer(questions[1], second, ("acc",)).correct.values())


def test_bos_is_added_as_the_tokenizer_says(tiny_llama_untied, tiny_llama):
    for folder, expected in ((tiny_llama_untied, 0), (tiny_llama, ord("h"))):
        loaded = models.load(models.resolve(str(folder)))
        (encoded,) = encode_questions(loaded, [Question("hello", ("a", "b"), 0)])
        first = encoded.requests[0].context[0]
        assert first == 0 if expected == 0 else first != 0
    # A text that brings its own BOS does not get a second one.
    loaded = models.load(models.resolve(str(tiny_llama_untied)))
    (encoded,) = encode_questions(loaded, [Question("<s>hello", ("a", "b"), 0)])
    assert encoded.requests[0].context.count(0) == 1


def test_an_empty_context_stands_behind_the_prefix_token(llama):
    (encoded,) = encode_questions(llama, [Question("", ("a", "bc"), 0)])
    assert encoded.requests[0].context == (0,)
    assert [len(e) for e in encoded.requests[0].endings] == [2, 3]


def test_blanks_at_the_end_of_a_context_go_with_the_ending(llama):
    blank, none = encode_questions(llama, [Question("hi  ", ("a", "b"), 0), Question("hi", ("a", "b"), 0)])
    assert blank.requests[0].context == none.requests[0].context
    assert [len(e) for e in blank.requests[0].endings] == [4, 4]


# --- Answers ----------------------------------------------------------------------------------------------------------


def test_answers_by_each_metric():
    """-4 is the likeliest; per character -5/2 against -4/1; per byte the two-byte letter wins."""
    question = Question("c", ("a", "bc", "é"), 1)
    found = answer(question, (-4.0, -5.0, -4.5), ("acc", "acc_norm", "acc_bytes"))
    assert found.predictions == {"acc": 0, "acc_norm": 1, "acc_bytes": 2}
    assert found.correct == {"acc": False, "acc_norm": True, "acc_bytes": False}


def test_the_first_of_equals_is_chosen():
    assert answer(Question("c", ("a", "b"), 1), (-1.0, -1.0), ("acc",)).predictions == {"acc": 0}


def test_broken_weights_are_an_error(llama):
    with torch.no_grad():
        llama.model.get_output_embeddings().weight[3] = math.nan
    with pytest.raises(UserError, match="not finite"):
        scores_of(llama, [Question("a", ("b", "c"), 0)])
