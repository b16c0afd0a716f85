"""Fixtures for quantization: a device, and a checkpoint to look at or to break."""

from __future__ import annotations

import pytest
from tests.made_checkpoints import plan_for, save

from genaccel import devices, models


@pytest.fixture
def cpu():
    return devices.get("cpu")


@pytest.fixture
def saved(tmp_path, tiny_llama):
    """A real checkpoint with one layer in int8."""
    source = models.resolve(str(tiny_llama))
    save(tmp_path / "out", source, plan_for(models.layout_of(source), "int8"))
    return tmp_path / "out"
