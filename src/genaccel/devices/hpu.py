"""Intel Gaudi, through plain torch and ``habana_frameworks``; the only file that imports Gaudi's software.

Untested on a Gaudi so far: this project's machines have none. Every call is one that Intel documents.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from typing import Any

import torch

from genaccel.devices import seed_host

NAME = "hpu"


def _hthpu() -> Any:
    importlib.import_module("habana_frameworks.torch.core")
    return importlib.import_module("habana_frameworks.torch.hpu")


def unavailable_reason() -> str | None:
    """None when Gaudi's software is installed and sees a card."""
    if importlib.util.find_spec("habana_frameworks") is None:
        return "habana_frameworks is not installed"
    return None if _hthpu().is_available() else "no Gaudi card is visible"


def describe() -> dict[str, str]:
    """Card, number of cards and whether torch runs in lazy mode."""
    hpu = _hthpu()
    return {
        "accelerator": str(hpu.get_device_name()),
        "devices": str(hpu.device_count()),
        "lazy_mode": os.environ.get("PT_HPU_LAZY_MODE", "unset"),
    }


def torch_device() -> torch.device:
    """Where tensors go."""
    _hthpu()
    return torch.device("hpu")


def synchronize() -> None:
    """Wait for the card (in lazy mode this also launches what was collected)."""
    _hthpu().synchronize()


def reuse_memory() -> None:
    """The device's own allocator keeps freed memory."""


def reset_peak_memory() -> None:
    """Start a new peak measurement."""
    _hthpu().reset_peak_memory_stats()


def peak_memory_bytes() -> int | None:
    """Peak bytes allocated on the current card."""
    return int(_hthpu().max_memory_allocated())


def seed(seed: int) -> None:
    """Seed every generator."""
    seed_host(seed)
    importlib.import_module("habana_frameworks.torch.hpu.random").manual_seed_all(seed)


def generator_state() -> torch.Tensor:
    """State of the current card's generator."""
    state = importlib.import_module("habana_frameworks.torch.hpu.random").get_rng_state()
    assert isinstance(state, torch.Tensor)
    return state


def set_generator_state(state: torch.Tensor) -> None:
    """Go on from ``state``."""
    importlib.import_module("habana_frameworks.torch.hpu.random").set_rng_state(state)


def choose_mode(mode: str) -> None:
    """Run eagerly or lazily; Gaudi's software reads the variable when it is first imported."""
    os.environ["PT_HPU_LAZY_MODE"] = "1" if mode == "lazy" else "0"


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, dropout: float
) -> torch.Tensor:
    """Causal attention of [rows, heads, length, head_dim] by Gaudi's own kernel, which never stores the scores."""
    kernel = importlib.import_module("habana_frameworks.torch.hpex.kernels").FusedSDPA
    out = kernel.apply(query, key, value, None, dropout, True, scale)
    assert isinstance(out, torch.Tensor)
    return out


def is_lazy() -> bool:
    """Whether torch collects operations into graphs (PT_HPU_LAZY_MODE=1) instead of running them one by one."""
    return os.environ.get("PT_HPU_LAZY_MODE", "0") == "1"


def mark() -> float:
    """The clock after the card has done what it was given: in lazy mode an event would be collected, too."""
    synchronize()
    return time.perf_counter()


def seconds_between(start: float, stop: float) -> float:
    """Seconds between two readings."""
    return stop - start


def launch_collected() -> None:
    """Lazy mode: end the graph here, so that backward pass and update are graphs of their own."""
    if is_lazy():
        importlib.import_module("habana_frameworks.torch.core").mark_step()


def collective_backend() -> str:
    """HCCL; its module registers the backend."""
    importlib.import_module("habana_frameworks.torch.distributed.hccl")
    return "hccl"


def use_local(local_rank: int) -> None:
    """Each process has a card of its own; Gaudi's software reads this variable when it starts."""
    os.environ.setdefault("HLS_MODULE_ID", str(local_rank))


def memory_bytes() -> int | None:
    """Memory of the current card."""
    return int(_hthpu().get_device_properties(0).total_memory)


def energy_joules() -> float | None:
    """Unknown: hl-smi tells power, not energy."""
    return None
