"""Token perplexity over windows of a text, with every choice that changes the figure in the protocol's name.

The text is tokenized once, as it is and without special tokens, and cut into windows. A window of W tokens gives W - 1
targets; with a stride below W, windows overlap and each one after the first scores only its last ``stride`` tokens.
Nothing is added in front unless the tokenizer itself asks for a BOS; the protocol says so then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

from genaccel.corpora import Corpus
from genaccel.errors import UserError
from genaccel.evaluate.scoring import has_plain_head, target_log_probabilities
from genaccel.evaluate.streams import in_streams
from genaccel.models import LoadedModel


@dataclass(frozen=True)
class WindowProtocol:
    """Window length and stride in tokens; ``limit`` keeps the first so many windows, None scores the whole text."""

    window: int = 1024
    stride: int = 1024
    limit: int | None = None

    def check(self, max_positions: int | None) -> None:
        """Raise ``UserError`` for a window that makes no sense or that the model has no positions for."""
        if self.window < 2:
            raise UserError(
                f"A window of {self.window} tokens has nothing to predict.", "Use at least 2; 1024 is the default."
            )
        if not 1 <= self.stride <= self.window:
            raise UserError(
                f"The stride is {self.stride}, but it must lie in 1..{self.window}.", "It defaults to the window."
            )
        if self.limit is not None and self.limit < 1:
            raise UserError(
                f"The limit is {self.limit} windows, but it must be at least 1.", "Leave it out for the whole text."
            )
        if max_positions is not None and self.window > max_positions:
            raise UserError(
                f"A window of {self.window} tokens is longer than the model's context of {max_positions}.",
                f"Use --window {max_positions} or less.",
            )


@dataclass(frozen=True)
class Windows:
    """Token windows (1, length) with the number of trailing targets that count in each."""

    items: tuple[tuple[torch.Tensor, int], ...]
    num_tokens_in_text: int
    adds_bos: bool
    protocol: WindowProtocol
    corpus: Corpus

    def describe(self) -> str:
        """The protocol's name: everything that changes the figure."""
        p = self.protocol
        scope = f"first {len(self.items)} windows" if p.limit else f"whole text, {len(self.items)} windows"
        bos = "BOS before each window" if self.adds_bos else "no BOS"
        stride = min(p.stride, p.window - self.adds_bos)
        return f"token perplexity, {self.corpus.name}, window {p.window}, stride {stride}, {bos}, {scope}"


@dataclass(frozen=True)
class WindowScores:
    """Sum of negative log-likelihoods (nats) and number of scored tokens, by window."""

    nll_by_window: tuple[float, ...]
    tokens_by_window: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        """Scored tokens."""
        return sum(self.tokens_by_window)

    @property
    def mean_nll(self) -> float:
        """Mean negative log-likelihood per scored token, nats."""
        return math.fsum(self.nll_by_window) / self.num_tokens

    @property
    def perplexity(self) -> float:
        """exp(mean negative log-likelihood)."""
        return math.exp(self.mean_nll)


def tokenize_windows(loaded: LoadedModel, corpus: Corpus, protocol: WindowProtocol) -> Windows:
    """Cut ``corpus`` into windows; ``UserError`` when it is shorter than one."""
    protocol.check(loaded.max_positions)
    encoded = loaded.tokenizer(corpus.text, add_special_tokens=False, return_attention_mask=False, verbose=False)
    tokens = torch.tensor(encoded["input_ids"], dtype=torch.long)
    bos = bos_that_the_tokenizer_adds(loaded)
    room = protocol.window - len(bos)
    if len(tokens) < room:
        raise UserError(
            f"The text '{corpus.name}' has {len(tokens)} tokens, fewer than one window of {protocol.window}.",
            "Give a longer text or a smaller --window.",
        )
    prefix = torch.tensor(bos, dtype=torch.long)
    items = []
    scored_until = 0
    # A BOS takes a place in the window, so a stride of a whole window would step over a token.
    for start in range(0, len(tokens), min(protocol.stride, room)):
        piece = tokens[start : start + room]
        end = start + len(piece)
        # Without a BOS the very first token of a window has no context, so it is no target.
        targets = min(end - scored_until, len(piece) - (0 if bos else 1))
        if targets > 0:
            items.append((torch.cat([prefix, piece])[None], targets))
        scored_until = end
        if end == len(tokens) or len(items) == protocol.limit:
            break
    return Windows(tuple(items), len(tokens), bool(bos), protocol, corpus)


def bos_that_the_tokenizer_adds(loaded: LoadedModel) -> list[int]:
    """The BOS that the tokenizer puts in front of a text, as a list of one, or nothing."""
    bos = loaded.tokenizer.bos_token_id
    return [bos] if bos is not None and list(loaded.tokenizer("a").input_ids)[:1] == [bos] else []


def score_windows(
    loaded: LoadedModel,
    windows: Windows,
    advance: Callable[[str], None] = lambda _: None,
    known: Mapping[int, float] = MappingProxyType({}),
    keep: Callable[[int, float], None] = lambda _, __: None,
) -> WindowScores:
    """Score every window; ``advance`` is called after each new one with the running perplexity.

    Windows whose sum is ``known`` already are not scored again; the sum of each new one is handed to ``keep``.
    """
    nll: list[float] = []
    counts: list[int] = []
    place = next(loaded.model.parameters()).device
    has_plain_head(loaded.model)  # tried once here, not by every stream at once

    def score(item: tuple[torch.Tensor, int]) -> float:
        ids, targets = item
        return -float(target_log_probabilities(loaded.model, ids.to(place), targets).double().sum())

    scored = in_streams(score, (item for i, item in enumerate(windows.items) if i not in known), place)
    for index, (_, targets) in enumerate(windows.items):
        total = known[index] if index in known else next(scored)
        if not math.isfinite(total):
            raise UserError(
                f"The model gives a log-likelihood of {total} in window {len(nll) + 1}.",
                "Its weights or a kernel are broken; try --device cpu, or other formats in the plan.",
            )
        nll.append(total)
        counts.append(targets)
        if index not in known:
            keep(index, total)
            advance(f"perplexity {math.exp(math.fsum(nll) / sum(counts)):.3f}")
    return WindowScores(tuple(nll), tuple(counts))
