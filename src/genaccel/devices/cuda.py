"""NVIDIA (and, through HIP, AMD) GPUs."""

from __future__ import annotations

import torch

from genaccel.devices import seed_host

NAME = "cuda"


def unavailable_reason() -> str | None:
    """None when torch sees a GPU."""
    if torch.version.cuda is None and torch.version.hip is None:
        return "this torch is built without CUDA"
    return None if torch.cuda.is_available() else "torch sees no GPU"


def describe() -> dict[str, str]:
    """Name, compute capability, memory and CUDA version of the current GPU."""
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "accelerator": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "memory_gib": f"{properties.total_memory / 2**30:.1f}",
        "devices": str(torch.cuda.device_count()),
        "driver": f"CUDA {torch.version.cuda}" if torch.version.cuda else f"HIP {torch.version.hip}",
    }


def torch_device() -> torch.device:
    """Where tensors go."""
    return torch.device("cuda", torch.cuda.current_device())


def synchronize() -> None:
    """Wait for the GPU."""
    torch.cuda.synchronize()


def reuse_memory() -> None:
    """The device's own allocator keeps freed memory."""


def reset_peak_memory() -> None:
    """Start a new peak measurement."""
    torch.cuda.reset_peak_memory_stats()


def peak_memory_bytes() -> int | None:
    """Peak bytes allocated by torch on the current GPU."""
    return torch.cuda.max_memory_allocated()


def seed(seed: int) -> None:
    """Seed every generator."""
    seed_host(seed)
    torch.cuda.manual_seed_all(seed)
