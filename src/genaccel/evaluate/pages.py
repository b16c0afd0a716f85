"""WikiText-2 by pages: lm-eval's word and byte perplexity and bits per byte, under those names.

Figures of EleutherAI's lm-evaluation-harness 0.4.13 (task ``wikitext``, document-level WikiText-2): each page, freed of
tokenization marks, is scored as a whole behind one prefix token, in windows of the model's context that do not overlap
but for their last one; words and bytes are counted on the page as it was before. A word perplexity of 40 and a token
perplexity of 15 can be the same model: they are different figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genaccel.evaluate.choice import context_length, encode_texts, prefix_token
from genaccel.evaluate.packing import Request, score_requests
from genaccel.models import LoadedModel


@dataclass(frozen=True)
class Page:
    """A page as the corpus has it, and its counts."""

    text: str

    @property
    def num_words(self) -> int:
        """Pieces between stretches of white space, an empty one at either end included, as lm-eval counts."""
        return len(re.split(r"\s+", self.text))

    @property
    def num_bytes(self) -> int:
        """UTF-8 bytes."""
        return len(self.text.encode())


def split_pages(text: str) -> list[Page]:
    """Pages of WikiText's raw text: each begins at a heading of level one (``' = Title = '``)."""
    pages: list[list[str]] = [[]]
    for line in text.split("\n"):
        title = line.replace("= = =", "===").replace("= =", "==").strip()
        if title.startswith("= ") and title.endswith(" ="):
            pages.append([])
        pages[-1].append(line)
    return [Page(page) for lines in pages if (page := "\n".join(lines)).strip()]


_SEPARATORS = [(" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", ".")] + [(f" {mark} ", f"{mark} ") for mark in ":;.!?,"]
_PAIRS = [(r"\(\s*([^\)]*?)\s*\)", r"(\1)"), (r"\[\s*([^\]]*?)\s*\]", r"[\1]"), (r"{\s*([^}]*?)\s*}", r"{\1}")]
_PAIRS += [(rf"{quote}\s*([^{quote}]*?)\s*{quote}", rf"{quote}\1{quote}") for quote in "\"'"]
_REST = [("= = = =", "===="), ("= = =", "==="), ("= =", "=="), (" ° ", "°"), (" \n", "\n"), ("\n ", "\n")]
_REST += [(" N ", " 1 "), (" 's", "'s")]


def detokenize(text: str) -> str:
    """Undo WikiText's tokenization of numbers, punctuation, brackets and headings, in lm-eval's order."""
    text = text.replace("s '", "s'")
    # lm-eval also has a pattern for years here; its slashes are part of it, so that it changes only "/' 0/".
    text = re.sub(r"/' [0-9]/", "/'[0-9]/", text)
    for old, new in _SEPARATORS:
        text = text.replace(old, new)
    for pattern, new in _PAIRS:
        text = re.sub(pattern, new, text)
    for old, new in _REST:
        text = text.replace(old, new)
    return text


def rolling_windows(tokens: Sequence[int], prefix: int, window: int) -> list[Request]:
    """Requests that together score every token once, each from at most ``window`` tokens of input.

    The first begins with ``prefix``; the last reaches back so that it is as long as the others.
    """
    requests = []
    for start in range(0, len(tokens), window):
        stop = min(start + window, len(tokens))
        before = tokens[:start] if start else [prefix]
        context = before[-(window - (stop - start) + 1) :]
        requests.append(Request(tuple(context), (tuple(tokens[start:stop]),)))
    return requests


def score_pages(
    loaded: LoadedModel,
    pages: Sequence[Page],
    batch_size: int | None,
    done: Callable[[int], bool],
    keep: Callable[[int, float], None],
) -> int:
    """Hand the log-likelihood (nats) of every page that is not ``done`` to ``keep``; returns the number of tokens."""
    window = context_length(loaded)
    prefix = prefix_token(loaded.tokenizer)
    encoded = encode_texts(loaded.tokenizer, [detokenize(page.text) for page in pages])
    requests: list[Request] = []
    owners: list[int] = []
    missing = [0] * len(pages)
    for number, tokens in enumerate(encoded):
        windows = rolling_windows(tokens, prefix, window)
        missing[number] = len(windows)
        requests += windows
        owners += [number] * len(windows)
    sums = [0.0] * len(pages)
    for batch in score_requests(loaded.model, requests, batch_size, lambda i: done(owners[i])):
        for index, (value,) in batch:
            number = owners[index]
            sums[number] += value
            missing[number] -= 1
            if not missing[number] and not done(number):
                keep(number, sums[number])
    return sum(map(len, encoded))
