"""Checkpoints of training, by torch.distributed.checkpoint: resumable with another number of processes or strategy.

A checkpoint is a folder ``step-N`` of safetensors shards (no pickle is written or read) and ``progress.json``. It is
written under a temporary name and renamed when every process is done; the last K are kept.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from genaccel.errors import UserError
from genaccel.records import structure_strictly
from genaccel.store import explain_os_error, write_text

if TYPE_CHECKING:
    from genaccel.train.engine import Steps
    from genaccel.train.group import Group

PROGRESS = "progress.json"


@dataclass(frozen=True)
class Progress:
    """How far training had come. ``identity`` says what is trained on what: another one cannot go on from it."""

    step: int
    samples: int
    updates: int
    identity: dict[str, Any]
    strategy: str
    processes: int
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run in ``folder``, which all processes see."""

    folder: Path
    keep: int
    group: Group
    identity: dict[str, Any]
    more_tensors: Callable[[], dict[str, torch.Tensor]] = dict
    """What a workload keeps besides, such as a running mean of the weights: saved, and filled in place."""

    def save(self, engine: Steps, step: int, samples: int, updates: int, losses: list[float]) -> Path:
        """Write the state after ``step`` steps, by all processes together."""
        path = self.folder / f"step-{step:08d}"
        temporary = self.folder / f".{path.name}.part"
        progress = Progress(
            step, samples, updates, self.identity, str(engine.describe()["strategy"]), self.group.world_size, losses
        )
        with explain_os_error(path):
            if self.group.rank == 0:
                shutil.rmtree(temporary, ignore_errors=True)
                temporary.mkdir(parents=True)
            self.group.barrier()
            writer = HuggingFaceStorageWriter(str(temporary), save_distributed=True)
            tensors = engine.tensors() | self.more_tensors() | self._generators()
            with _quiet():
                save(
                    # safetensors takes plain layouts only; channels may lie innermost in memory.
                    {name: t if t.is_contiguous() else t.contiguous() for name, t in tensors.items()},
                    storage_writer=writer,
                    no_dist=self.group.world_size == 1,
                )
            if self.group.rank == 0:
                write_text(temporary / PROGRESS, json.dumps(asdict(progress), indent=1, allow_nan=False))
                for file in temporary.iterdir():
                    with open(file, "rb") as handle:
                        os.fsync(handle.fileno())
                shutil.rmtree(path, ignore_errors=True)
                os.rename(temporary, path)
                for old in checkpoints_in(self.folder)[: -self.keep]:
                    shutil.rmtree(old, ignore_errors=True)
        self.group.barrier()
        return path

    def latest(self) -> tuple[Path, Progress] | None:
        """The last whole checkpoint; ``UserError`` when it belongs to another run."""
        found = checkpoints_in(self.folder)
        if not found:
            return None
        progress = read_progress(found[-1])
        differing = [
            k
            for k in self.identity.keys() | progress.identity.keys()
            if self.identity.get(k) != progress.identity.get(k)
        ]
        if differing:
            name = sorted(differing)[0]
            raise UserError(
                f"{found[-1]} is of another run: its {name} is {progress.identity.get(name)}, "
                f"not {self.identity.get(name)}.",
                "Choose another --checkpoints folder, or give the same options as before.",
            )
        return found[-1], progress

    def load(self, path: Path, progress: Progress, engine: Steps) -> None:
        """Put ``engine`` and this process's random numbers into the state of ``path``."""
        tensors = engine.tensors()
        same_processes = progress.processes == self.group.world_size
        generators = self._generators() if same_processes else {}
        with _quiet():
            load(
                tensors | self.more_tensors() | generators,
                storage_reader=HuggingFaceStorageReader(str(path)),
                no_dist=self.group.world_size == 1,
            )
        engine.load(tensors, progress.updates)
        if same_processes:
            host = generators[f"generator.{self.group.rank}.host"]
            torch.set_rng_state(host)
            self.group.device.set_generator_state(generators[f"generator.{self.group.rank}.device"])
        else:  # the streams of a process that no longer exists cannot go on
            self.group.device.seed(int(self.identity["seed"]) + progress.samples + self.group.rank)

    def _generators(self) -> dict[str, torch.Tensor]:
        rank = self.group.rank
        return {
            f"generator.{rank}.host": torch.get_rng_state(),
            f"generator.{rank}.device": self.group.device.generator_state(),
        }


def checkpoints_in(folder: Path) -> list[Path]:
    """The whole checkpoints in ``folder``, oldest first."""
    return sorted(p for p in folder.glob("step-*") if (p / PROGRESS).is_file())


def read_progress(path: Path) -> Progress:
    """What ``path`` says about itself, read strictly."""
    file = path / PROGRESS
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            f"{file} is not JSON: {error}.", f"Remove {path}; an earlier checkpoint is used then."
        ) from None
    return structure_strictly(Progress, data, str(file))


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns that a single process saves without a group, which is what is wanted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
