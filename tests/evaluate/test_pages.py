"""Pages of WikiText: where they begin, how they are cut into windows, what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel import models
from genaccel.evaluate.pages import Page, detokenize, rolling_windows, score_pages, split_pages

TEXT = " \n = First = \n \n Some text . \n = = Part = = \n = x \n \n = Second = \n \n End . \n = = = Deep = = = \n"


def test_pages_begin_at_headings_of_level_one():
    pages = split_pages(TEXT)
    assert [p.text.splitlines()[0] for p in pages] == [" = First = ", " = Second = "]
    assert " \n" + "\n".join(p.text for p in pages) == TEXT
    assert split_pages("no heading at all") == [Page("no heading at all")]


def test_words_and_bytes_are_those_of_the_original_page():
    page = Page(" = A é = \n two words \n")
    assert page.num_words == 8  # '', '=', 'A', 'é', '=', 'two', 'words', ''
    assert page.num_bytes == len(page.text) + 1
    assert detokenize(page.text) != page.text


@given(st.integers(0, 60), st.integers(1, 17))
def test_windows_score_every_token_once_behind_its_predecessors(length, window):
    tokens = list(range(100, 100 + length))
    requests = rolling_windows(tokens, 7, window)
    assert [t for r in requests for e in r.endings for t in e] == tokens
    for request in requests:
        whole = [*request.context, *request.endings[0]]
        assert len(whole) - 1 <= window
        assert whole == ([7, *tokens])[whole[0] - 99 if whole[0] != 7 else 0 :][: len(whole)]
    if length > window:
        assert len(requests[-1].context) + len(requests[-1].endings[0]) - 1 == window


@pytest.mark.parametrize("batch_size", [None, 1, 7])
def test_page_scores_do_not_depend_on_batches(tiny_model, batch_size):
    loaded = models.load(models.resolve(str(tiny_model)))
    pages = [Page(f" = Page {i} = \n" + "some words ; " * (3 * i + 1)) for i in range(6)]
    alone, found = {}, {}
    score_pages(loaded, pages, 1, lambda _: False, alone.__setitem__)
    num_tokens = score_pages(loaded, pages, batch_size, lambda _: False, found.__setitem__)
    assert found == {i: pytest.approx(v, rel=1e-5) for i, v in alone.items()}
    assert num_tokens >= sum(len(detokenize(p.text)) for p in pages)
