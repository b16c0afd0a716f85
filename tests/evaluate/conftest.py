"""Small evaluation data."""

from __future__ import annotations

import pytest

from .small_runs import NUM_QUESTIONS, write_questions


@pytest.fixture
def data(tmp_path):
    """A folder laid out as evaluation data are, in small."""
    for name in ("wikitext-2", "hellaswag", "boolq"):
        (tmp_path / "data" / name).mkdir(parents=True)
    pages = "".join(f" \n = Page {i} = \n \n" + f" Word {i} and some more . \n" * (2 + i) for i in range(5))
    (tmp_path / "data" / "wikitext-2" / "wiki.test.raw").write_text(pages)
    write_questions(tmp_path / "data", NUM_QUESTIONS)
    return tmp_path / "data"
