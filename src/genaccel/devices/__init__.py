"""The thin device layer: one file per runtime, each with the same few functions (``Device``).

Code outside this package never asks what it runs on; it takes a ``Device`` and calls these.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, cast

from genaccel.errors import UserError, unknown

if TYPE_CHECKING:
    import torch

    from genaccel.records import Environment

NAMES = ("cpu", "cuda", "hpu")


class Device(Protocol):
    """What every runtime file provides."""

    NAME: str

    def unavailable_reason(self) -> str | None:
        """None when the device can be used, otherwise why not, in a few words."""

    def describe(self) -> dict[str, str]:
        """Accelerator name, driver and what was probed, for people and records."""

    def torch_device(self) -> torch.device:
        """Where tensors go."""

    def synchronize(self) -> None:
        """Wait until all work given to the device is done; call it before reading the clock."""

    def reuse_memory(self) -> None:
        """Keep freed memory for the next tensors instead of returning it; call it before a long computation."""

    def reset_peak_memory(self) -> None:
        """Start a new peak measurement."""

    def peak_memory_bytes(self) -> int | None:
        """Peak since the last reset: allocated bytes on an accelerator, resident bytes of the process on a CPU."""

    def seed(self, seed: int) -> None:
        """Seed every generator of the device and of Python, numpy and torch."""

    def generator_state(self) -> torch.Tensor:
        """State of the device's own random numbers (uint8); on a CPU that of torch."""

    def set_generator_state(self, state: torch.Tensor) -> None:
        """Go on from what ``generator_state`` gave."""

    def mark(self) -> Any:
        """A point in the device's stream of work, for ``seconds_between``."""

    def seconds_between(self, start: Any, stop: Any) -> float:
        """Seconds that the device spent between two marks; call it after ``synchronize``."""

    def launch_collected(self) -> None:
        """Start the operations that a lazy runtime has only collected; elsewhere there are none."""

    def collective_backend(self) -> str:
        """The backend of torch.distributed that connects devices of this kind."""

    def use_local(self, local_rank: int) -> None:
        """Make the device number ``local_rank`` of this machine the current one."""

    def memory_bytes(self) -> int | None:
        """Memory of one device; on a CPU what the machine has available now. None when unknown."""

    def energy_joules(self) -> float | None:
        """A counter of the energy that the device has used, or None where it does not tell."""


def get(name: str) -> Device:
    """The device called ``name``, ready to use; ``auto`` takes the first of hpu, cuda, cpu that is there."""
    if name == "auto":
        return next(d for d in map(_module, ("hpu", "cuda", "cpu")) if d.unavailable_reason() is None)
    device = _module(name)
    reason = device.unavailable_reason()
    if reason is not None:
        raise UserError(f"Device {name} cannot be used: {reason}.", "Run 'genaccel list' to see what this machine has.")
    return device


def every() -> list[Device]:
    """All devices that genaccel knows, available or not."""
    return [_module(name) for name in NAMES]


def _module(name: str) -> Device:
    if name not in NAMES:
        raise unknown("device", name, (*NAMES, "auto"))
    return cast(Device, importlib.import_module(f"genaccel.devices.{name}"))


def seed_host(seed: int) -> None:
    """Seed Python, numpy and torch; the device files call this first."""
    import random

    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def environment(device: Device) -> Environment:
    """Where this run happens, for its record."""
    import torch

    from genaccel.records import Environment, describe_host, git_commit, package_versions

    cpu, python, platform = describe_host()
    about = device.describe()
    return Environment(
        device=device.NAME,
        accelerator=about["accelerator"],
        num_devices=1,
        num_threads=torch.get_num_threads(),
        host_cpu=cpu,
        python=python,
        platform=platform,
        packages=package_versions(("genaccel", "torch", "transformers", "safetensors", "numpy")),
        git_commit=git_commit(),
    )
