"""Probe a device and write what was found as an accelerator file."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from genaccel import console
from genaccel.errors import UserError
from genaccel.hardware import read_accelerator
from genaccel.link_probe import measure_links, why_not
from genaccel.probe import LONG_SECONDS, Probed, probe, slug, to_toml
from genaccel.probe_kernels import kernel_figures
from genaccel.store import check_writable, write_text

if TYPE_CHECKING:
    from genaccel.devices import Device


def probe_to_file(
    device: Device, output: Path, num_processes: int, name: str | None = None, long_seconds: float = LONG_SECONDS
) -> Probed:
    """Measure ``device`` and write ``output``; what can be wrong with that is checked before anything is measured."""
    if output.suffix != ".toml":
        raise UserError(f"{output} is no TOML file.", "Choose a name that ends in .toml.")
    check_writable(output.parent)
    _warn_of_others()
    about = device.describe()
    reason = why_not(device, num_processes)
    found = probe(device, reason or partial(measure_links, device, num_processes), long_seconds, kernel_figures)
    facts = {
        "description": f"{about['accelerator']}, measured",
        "runtime": device.NAME,
        "source": "genaccel probe: " + ", ".join(f"{key} {value}" for key, value in about.items() if value),
    }
    called = name or f"probed-{slug(about['accelerator'])}"
    date = datetime.now(UTC).date().isoformat()
    write_text(output, to_toml(found, called, facts, device.memory_bytes(), date))
    read_accelerator(output)  # what cannot be read back would be found out too late
    return found


def _warn_of_others() -> None:
    """Say that others use this machine: what is measured then is what they leave."""
    if not hasattr(os, "getloadavg"):
        return
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > cores / 2:
        console.warn(f"The load of this machine is {load:.1f} on {cores} cores: others take part of what is measured.")
