"""Low-rank adapters by peft, initialized alike whatever the strategy, and merged for the final weights."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING, Any

import torch

from genaccel.errors import UserError
from genaccel.layouts import walk

if TYPE_CHECKING:
    from genaccel.finetune.config import FinetuneConfig


def add_adapters(model: Any, config: FinetuneConfig, seed: int) -> Any:
    """Put adapters on the model's linear layers, in place; only they are trained, in fp32.

    A is drawn from peft's own distribution, by a generator of its own for every adapter: processes and sharding do
    not change it. B is zero.
    """
    from peft import LoraConfig, inject_adapter_in_model

    layout = walk(model)
    linear = [w.name for w in layout.weights if w.role == "linear"]
    wanted = config.lora_targets or tuple(dict.fromkeys(name.rsplit(".", 1)[1] for name in linear))
    for target in wanted:
        if not any(name.endswith(f".{target}") for name in linear):
            known = sorted({name.rsplit(".", 1)[1] for name in linear})
            raise UserError(f"No linear layer is called '{target}'.", f"There are {', '.join(known)}.")
    settings = LoraConfig(
        r=config.lora_rank,
        lora_alpha=config.lora_alpha,
        target_modules=list(wanted),
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(w.transposed for w in layout.weights),
    )
    inject_adapter_in_model(settings, model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            parameter.data = parameter.data.float()
            if not parameter.is_meta:
                parameter.copy_(initial(name, tuple(parameter.shape), seed))
    return settings


def initial(name: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """The adapter matrix ``name`` before training: B is zero; A is uniform over plus and minus 1 / sqrt(inputs).

    That is kaiming_uniform_ with a = sqrt(5), as in peft.
    """
    if ".lora_A." not in name:
        return torch.zeros(shape)
    generator = torch.Generator().manual_seed(seed + zlib.crc32(name.encode()))
    return torch.empty(shape).uniform_(-1, 1, generator=generator) * math.sqrt(1 / shape[1])
