"""Log-probabilities of given tokens, without logits for positions that nobody asked for.

The head of a small model costs a quarter of its time, and its logits are by far its largest tensor. So the decoder runs
alone and the head is applied to the scored positions, some rows at a time. That is only right when the model's logits
are ``head(decoder(ids))`` and nothing more (no soft cap, no logit scale): it is tried once per model on a few tokens,
and where it does not hold, the model's own forward is used, asked for the scored columns only.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

HEAD_ROWS = 128  # rows of logits held at a time: 25 MB for a vocabulary of 49,152
PARTITION_ROWS = 16

_PLAIN_HEAD = "_genaccel_plain_head"


@torch.inference_mode()
def target_log_probabilities(model: Any, ids: torch.Tensor, num_targets: int) -> torch.Tensor:
    """fp32 log p of the last ``num_targets`` tokens of ``ids`` (batch, length) given what precedes them.

    Returns (batch, num_targets).
    """
    length = ids.shape[1]
    positions = slice(length - 1 - num_targets, length - 1)
    targets = ids[:, length - num_targets :]
    if not has_plain_head(model):
        logits = _own_logits(model, ids, torch.arange(length, device=ids.device)[positions])
        return _pick(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)).view_as(targets)
    hidden = model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, positions]
    return head_log_probabilities(model, hidden.reshape(-1, hidden.shape[-1]), targets.reshape(-1)).view(targets.shape)


def head_log_probabilities(model: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """fp32 log p of ``targets`` (rows,) from hidden states (rows, width), ``HEAD_ROWS`` rows at a time."""
    head = model.get_output_embeddings()
    rows = [
        _pick(head(hidden[start : start + HEAD_ROWS]), targets[start : start + HEAD_ROWS])
        for start in range(0, hidden.shape[0], HEAD_ROWS)
    ]
    return torch.cat(rows)


@torch.inference_mode()
def log_probabilities_at(
    model: Any, ids: torch.Tensor, at: torch.Tensor, targets: Sequence[Sequence[int]], **inputs: torch.Tensor
) -> torch.Tensor:
    """fp32 log p of several candidates for the token that follows given places.

    ``ids`` (rows, length); ``at`` (places, 2) holds row and column of each place, ``targets`` its candidates; ``inputs``
    are further arguments of the model. Returns the log-probabilities of all candidates in order, one dimension.
    """
    rows, columns = at.unbind(-1)
    if has_plain_head(model):
        head = model.get_output_embeddings()
        hidden = model.base_model(input_ids=ids, use_cache=False, **inputs).last_hidden_state[rows, columns]
    else:
        head = torch.nn.Identity()
        kept = torch.tensor(sorted(set(columns.tolist())), device=ids.device)
        hidden = _own_logits(model, ids, kept, **inputs)[rows, torch.searchsorted(kept, columns.contiguous())]
    found = []
    for start in range(0, len(targets), HEAD_ROWS):
        some = targets[start : start + HEAD_ROWS]
        logits = head(hidden[start : start + HEAD_ROWS]).float()
        row = torch.tensor([i for i, wanted in enumerate(some) for _ in wanted], device=ids.device)
        column = torch.tensor([t for wanted in some for t in wanted], device=ids.device)
        found.append(logits[row, column] - _log_partition(logits)[row])
    return torch.cat(found)


def _own_logits(model: Any, ids: torch.Tensor, columns: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
    """The model's logits at ``columns`` of every row; no others are computed where its forward can leave them out."""
    if "logits_to_keep" in inspect.signature(model.forward).parameters:
        logits: torch.Tensor = model(input_ids=ids, use_cache=False, logits_to_keep=columns, **inputs).logits
        if logits.shape[1] == len(columns):
            return logits
    whole: torch.Tensor = model(input_ids=ids, use_cache=False, **inputs).logits
    return whole[:, columns]


def has_plain_head(model: Any) -> bool:
    """Whether logits are the head applied to the decoder's output: measured once and remembered on the model."""
    known = getattr(model, _PLAIN_HEAD, None)
    if known is None:
        known = _try_plain_head(model)
        setattr(model, _PLAIN_HEAD, known)
    return bool(known)


@torch.inference_mode()
def _try_plain_head(model: Any) -> bool:
    head = model.get_output_embeddings()
    if head is None or model.base_model is model:
        return False
    ids = torch.arange(1, 9, device=next(model.parameters()).device)[None]
    output = model.base_model(input_ids=ids, use_cache=False)
    if not hasattr(output, "last_hidden_state"):
        return False
    expected = model(input_ids=ids, use_cache=False).logits.float()
    got = head(output.last_hidden_state).float()
    if not torch.isfinite(expected).all():
        return False
    # The same product of the same shape: anything but rounding is a difference, a soft cap on small logits too.
    return got.shape == expected.shape and torch.allclose(
        got, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max())
    )


def _pick(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = logits.float()
    return logits.gather(1, targets[:, None])[:, 0] - _log_partition(logits)


def _log_partition(logits: torch.Tensor) -> torch.Tensor:
    """Log of the sum of exponentials of every row (rows,).

    Not ``log_softmax``: on CPUs it adds a whole vocabulary into a few fp32 lanes, and is off by up to 1e-5, always to
    one side. ``logsumexp`` adds in a tree; a few rows at a time it stays in the cache and costs no more.
    """
    return torch.cat([piece.logsumexp(-1) for piece in torch.split(logits, PARTITION_ROWS)])
