"""A greedy answer to a prompt, by whatever strategy holds the weights: all processes compute it together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from genaccel.finetune.data import prompt_ids

if TYPE_CHECKING:
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group

LONGEST = 64


@torch.no_grad()
def answer(engine: Steps, tokenizer: Any, prompt: str, group: Group) -> str:
    """Up to 64 most likely tokens after ``prompt`` in the model's own layout of a conversation, as text.

    Every token runs the whole sequence again: sharded weights have no cache to keep, and one answer is short.
    """
    ids = prompt_ids(tokenizer, prompt)
    start = len(ids)
    device = group.device.torch_device()
    for _ in range(LONGEST):
        with engine.autocast():
            logits = engine.model(
                input_ids=torch.tensor([ids], device=device), logits_to_keep=1, use_cache=False
            ).logits
        ids.append(int(logits[0, -1].argmax()))
        if ids[-1] == tokenizer.eos_token_id:
            break
    return str(tokenizer.decode(ids[start:], skip_special_tokens=True)).strip()
