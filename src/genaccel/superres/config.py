"""What super-resolution runs are told: the fields are the command line's options, their docstrings its help. No torch here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError

# cyclopts resolves the inherited options' types by name in this module.
from genaccel.train.config import Attention, Precision, Schedule, Strategy, TrainConfig  # noqa: F401

FACTORS = (2, 4, 8)
NUM_STEPS = 10
"""Evaluations of the network for a draw; the spectrum of draws is calibrated with as many."""


@dataclass(frozen=True)
class SuperresConfig:
    """What to train on what.

    Parameters
    ----------
    data
        builtin (Planck and SFD dust of the whole sky), synthetic, or folders and files of maps (FITS, .npy).
    preset
        Size of the networks: tiny (for a CPU), small or base.
    process
        rectified-flow, edm, or sr3, the classical baseline.
    factor
        How many times as many pixels along a side: 2, 4 or 8.
    patch
        Side of the high-resolution patches that are trained on, in pixels.
    minutes
        Train for this long (wall clock) instead of a number of steps.
    probe
        Measure which precision, memory layout and (on a GPU) compilation trains fastest here and use it; --no-probe, and any
        --precision but fp32, leave the precision as it is told.
    ema
        Decay of the running mean of the weights that is used in the end.
    output
        Folder for the trained model.
    device
        Where to run: auto, cpu, cuda or hpu.
    runs
        Folder for the record.
    """

    data: tuple[str, ...] = ("builtin",)
    _: KW_ONLY
    preset: str = "tiny"
    process: str = "rectified-flow"
    factor: int = 4
    patch: int = 64
    minutes: float | None = None
    probe: bool = True
    ema: float = 0.995
    output: Path = Path("superres-model")
    device: str = "auto"
    runs: Path = Path("runs")

    def check(self) -> None:
        """Raise ``UserError`` for the first value that cannot work."""
        if self.factor not in FACTORS:
            raise UserError(f"--factor is {self.factor}, but it must be 2, 4 or 8.", "")
        if self.patch < 2 * self.factor or self.patch % self.factor:
            raise UserError(
                f"Patches of {self.patch} pixels cannot be divided into blocks of {self.factor}.",
                "Choose --patch as a multiple of --factor.",
            )
        if not 0 <= self.ema < 1:
            raise UserError(f"--ema is {self.ema:g}, but it must lie in 0..1.", "The default is 0.995.")
        if self.minutes is not None and self.minutes <= 0:
            raise UserError(f"--minutes is {self.minutes:g}, but it must be positive.", "")


@dataclass(frozen=True)
class DustTrainConfig(TrainConfig):
    __doc__ = TrainConfig.__doc__

    _: KW_ONLY
    global_batch: int = 16
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    warmup_samples: int = 160


@dataclass(frozen=True)
class SampleConfig:
    """What to super-resolve and how.

    Parameters
    ----------
    maps
        FITS or .npy files; of a HEALPix table, patches are taken.
    model
        Folder of a trained model.
    factor
        How many times as many pixels along a side are wanted; a model of another factor is refused.
    members
        Draws of the ensemble.
    steps
        Evaluations of the network for each draw.
    preserve_flux
        Shift every block of pixels so that its mean is that of the low-resolution pixel.
    tile
        Side of the tiles, in high-resolution pixels, that larger maps are computed in.
    patches
        How many patches of a HEALPix map to take.
    output
        Folder for the super-resolved maps.
    device
        Where to run: auto, cpu, cuda or hpu.
    seed
        Seed of the draws.
    """

    maps: tuple[Path, ...]
    _: KW_ONLY
    model: Path = Path("superres-model")
    factor: int | None = None
    members: int = 8
    steps: int = NUM_STEPS
    preserve_flux: bool = True
    tile: int = 256
    patches: int = 4
    output: Path = Path("super-resolved")
    device: Literal["auto", "cpu", "cuda", "hpu"] = "auto"
    seed: int = 0

    def check(self) -> None:
        """Raise ``UserError`` for the first value that cannot work."""
        for name, least in (("members", 1), ("steps", 1), ("patches", 1), ("tile", 32)):
            if getattr(self, name) < least:
                raise UserError(f"--{name} is {getattr(self, name)}, but it must be at least {least}.", "")


@dataclass(frozen=True)
class JudgeMapsConfig:
    """What to judge a super-resolver on.

    Parameters
    ----------
    model
        Folder of a trained model.
    data
        Maps at high resolution: builtin, synthetic, files or folders. Those of the areas that it was trained on are left
        out; by default the data that it was trained on, less those areas.
    members
        Draws of the ensemble.
    steps
        Evaluations of the network for each draw.
    limit
        Judge this many maps at most.
    output
        Folder for the pictures.
    device
        Where to run: auto, cpu, cuda or hpu.
    runs
        Folder for the record.
    seed
        Seed of the draws.
    """

    model: Path = Path("superres-model")
    _: KW_ONLY
    data: tuple[str, ...] = ("builtin",)
    members: int = 8
    steps: int = NUM_STEPS
    limit: int = 16
    output: Path = Path("super-resolved")
    device: str = "auto"
    runs: Path = Path("runs")
    seed: int = 0

    def check(self) -> None:
        """Raise ``UserError`` for the first value that cannot work."""
        for name in ("members", "steps", "limit"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is {getattr(self, name)}, but it must be at least 1.", "")
