"""Continuations of a shared context, scored with the context computed once.

A request becomes one row of tokens: the context, then every ending but its last token, whose successor nobody asks for.
Endings see the context and themselves but not each other (a mask of blocks), and each one's positions go on from the
context. Rows are sorted by length and batched by tokens, and the head sees the scored positions only. An ending of one
token needs no row of its own, so a yes/no question costs its context and two probabilities. Running the context into a
KV cache and the endings behind it computes the same; on a CPU it took 1.5 times as long as packed rows behind short
contexts, and 1.06 times behind five-shot ones.

Not every model takes such a mask: flash kernels, sliding windows shorter than the row, recurrent layers. It is tried
once per model against plain rows; where it does not hold, every ending gets a plain causal row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from genaccel.errors import UserError
from genaccel.evaluate.scoring import has_plain_head, log_probabilities_at
from genaccel.evaluate.streams import in_streams

_SHARES = "_genaccel_shares_contexts"
AUTO_TOKENS = {"cpu": 1024}  # of a batch, measured: fewer leave cores idle, more leave the cache
AUTO_TOKENS_ELSEWHERE = 8192


@dataclass(frozen=True)
class Request:
    """Token ids: a context of at least one token, and continuations of at least one token each."""

    context: tuple[int, ...]
    endings: tuple[tuple[int, ...], ...]

    @property
    def num_tokens(self) -> int:
        """Length of the packed row."""
        return len(self.context) + sum(len(e) - 1 for e in self.endings)

    @property
    def num_positions(self) -> int:
        """Length of the longest sequence that the model sees."""
        return len(self.context) + max(len(e) - 1 for e in self.endings)

    @property
    def needs_mask(self) -> bool:
        """Whether two endings would see each other in a plain causal row."""
        return sum(len(e) > 1 for e in self.endings) > 1


# --- Batches ----------------------------------------------------------------------------------------------------------


def plan_batches(lengths: Sequence[int], max_rows: int | None, max_tokens: int | None) -> list[list[int]]:
    """Indices of rows in batches, longest first: at most ``max_rows`` rows, and ``max_tokens`` with padding.

    The longest comes first so that memory runs out at once or never, and an estimate of the time left errs upwards.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        batch = batches[-1] if batches else None
        full = (
            batch is None
            or (max_rows is not None and len(batch) >= max_rows)
            or (max_tokens is not None and lengths[batch[0]] * (len(batch) + 1) > max_tokens)
        )
        if full or batch is None:
            batches.append([index])
        else:
            batch.append(index)
    return batches


def score_requests(
    model: Any,
    requests: Sequence[Request],
    batch_size: int | None = None,
    done: Callable[[int], bool] = lambda _: False,
) -> Iterator[list[tuple[int, list[float]]]]:
    """Log-likelihoods (nats) of every request's endings, a batch of (index, sums) at a time.

    ``batch_size`` is in requests, None fills batches by tokens. Batches whose requests are all ``done`` are passed over;
    the others keep their composition, so that an interrupted evaluation gives bit for bit what a whole one does.
    """
    place = next(model.parameters()).device
    has_plain_head(model)  # tried once here, not by every stream at once
    budget = None if batch_size else AUTO_TOKENS.get(place.type, AUTO_TOKENS_ELSEWHERE)
    rows_of = [_rows(model, request) for request in requests]
    # Apart, because the mask of a batch would also replace the sliding window of a row that needs no mask.
    for masked in (True, False):
        chosen = [i for i, rows in enumerate(rows_of) if rows[0].needs_mask == masked]
        lengths = [sum(row.num_tokens for row in rows_of[i]) for i in chosen]
        batches = [[chosen[p] for p in places] for places in plan_batches(lengths, batch_size, budget)]
        left = [batch for batch in batches if not all(map(done, batch))]

        def score(batch: list[int]) -> list[tuple[int, list[float]]]:
            sums = iter(_score_rows(model, [row for i in batch for row in rows_of[i]], place))
            return [(i, [value for _ in rows_of[i] for value in next(sums)]) for i in batch]

        yield from in_streams(score, left, place)


def shares_context(model: Any, request: Request) -> bool:
    """Whether this request's context is computed once for all of its endings."""
    if not request.needs_mask:
        return True
    reach = _attention_reach(model)
    return shares_contexts(model) and (reach is None or request.num_positions <= reach)


def _rows(model: Any, request: Request) -> list[Request]:
    """One row for the whole request where the model can share its context, else one for each ending."""
    if shares_context(model, request):
        return [request]
    return [Request(request.context, (ending,)) for ending in request.endings]


def _attention_reach(model: Any) -> int | None:
    """Tokens that a layer of limited attention looks back, or None: a mask of ours would replace that limit."""
    config = model.config.get_text_config()
    found = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((n for n in found if n), default=None)


# --- One batch --------------------------------------------------------------------------------------------------------


@torch.inference_mode()
def _score_rows(model: Any, rows: Sequence[Request], place: torch.device, blocks: bool = True) -> list[list[float]]:
    """Sums of log p by row and ending. A batch that does not fit in the device's memory is halved, down to one row."""
    try:
        return _score_batch(model, rows, place, blocks)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise UserError(
                f"A row of {rows[0].num_tokens} tokens does not fit in the device's memory.", "Use --device cpu."
            ) from None
    middle = len(rows) // 2
    return [s for half in (rows[:middle], rows[middle:]) for s in _score_rows(model, half, place, blocks)]


def _score_batch(model: Any, rows: Sequence[Request], place: torch.device, blocks: bool) -> list[list[float]]:
    width = max(row.num_tokens for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    at: list[tuple[int, int]] = []
    targets: list[list[int]] = []
    for number, row in enumerate(rows):
        tokens = [*row.context, *(t for ending in row.endings for t in ending[:-1])]
        ids[number, : len(tokens)] = torch.tensor(tokens)
        at.append((number, len(row.context) - 1))
        targets.append([ending[0] for ending in row.endings])
        at += [(number, column) for column in range(len(row.context), len(tokens))]
        targets += [[t] for ending in row.endings for t in ending[1:]]
    inputs = _block_inputs(rows, width, next(model.parameters()).dtype) if blocks else {}
    inputs = {name: tensor.to(place) for name, tensor in inputs.items()}
    found = log_probabilities_at(model, ids.to(place), torch.tensor(at, device=place), targets, **inputs).tolist()
    values = iter(found)
    sums = []
    for row in rows:
        first = [next(values) for _ in row.endings]
        sums.append([math.fsum([f, *(next(values) for _ in e[1:])]) for f, e in zip(first, row.endings, strict=True)])
    if not all(math.isfinite(s) for row_sums in sums for s in row_sums):
        raise UserError(
            "The model gives a log-likelihood that is not finite.",
            "Its weights or a kernel are broken; try --device cpu, or other formats in the plan.",
        )
    return sums


def _block_inputs(rows: Sequence[Request], width: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Additive mask (rows, 1, width, width) and positions (rows, width); nothing where plain causal rows do."""
    if not any(row.needs_mask for row in rows):
        return {}
    block = torch.full((len(rows), width), -1)
    positions = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        start = len(row.context)
        block[number, :start] = 0
        positions[number, :start] = torch.arange(start)
        for ordinal, ending in enumerate(row.endings, 1):
            stop = start + len(ending) - 1
            block[number, start:stop] = ordinal
            positions[number, start:stop] = torch.arange(len(row.context), len(row.context) + stop - start)
            start = stop
    seen = (block[:, None, :] == 0) | (block[:, None, :] == block[:, :, None])
    seen &= torch.ones(width, width, dtype=torch.bool).tril()
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    return {"attention_mask": mask[:, None], "position_ids": positions}


# --- Does the model take it? ------------------------------------------------------------------------------------------


def shares_contexts(model: Any) -> bool:
    """Whether packed rows give this model's plain log-likelihoods: tried once and remembered on the model."""
    known = getattr(model, _SHARES, None)
    if known is None:
        known = _try_sharing(model)
        setattr(model, _SHARES, known)
    return bool(known)


def _try_sharing(model: Any) -> bool:
    place = next(model.parameters()).device
    context, endings = (1, 2, 3, 4), ((5, 6, 7), (8, 9, 10))
    packed = Request(context, endings)
    try:
        got = _score_rows(model, [packed], place)[0]
        plain = [s[0] for s in _score_rows(model, [Request(context, (e,)) for e in endings], place)]
        careless = _score_rows(model, [packed], place, blocks=False)[0]
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, UserError):
        return False
    # Rounding differs between kernels; what tells a mask that is ignored is how far an unmasked row goes astray.
    astray = max(abs(c - p) for c, p in zip(careless, plain, strict=True))
    return all(abs(g - p) <= 1e-5 + 0.05 * astray for g, p in zip(got, plain, strict=True))
