"""NVIDIA (and, through HIP, AMD) GPUs."""

from __future__ import annotations

import contextlib
from typing import Any

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


def generator_state() -> torch.Tensor:
    """State of the current GPU's generator."""
    return torch.cuda.get_rng_state()


def set_generator_state(state: torch.Tensor) -> None:
    """Go on from ``state``."""
    torch.cuda.set_rng_state(state)


def mark() -> Any:
    """An event in the current stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def seconds_between(start: Any, stop: Any) -> float:
    """Seconds between two events."""
    return float(start.elapsed_time(stop)) / 1000


def launch_collected() -> None:
    """Nothing is lazy here."""


def collective_backend() -> str:
    """NCCL (on AMD: RCCL under that name)."""
    return "nccl"


def use_local(local_rank: int) -> None:
    """Each process has a GPU of its own."""
    torch.cuda.set_device(local_rank % torch.cuda.device_count())


def memory_bytes() -> int | None:
    """Memory of the current GPU."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def energy_joules() -> float | None:
    """NVML's counter of the current GPU, in joules since the driver was loaded."""
    with contextlib.suppress(Exception):  # NVML is absent, or the GPU has no counter
        import pynvml

        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000
    return None
