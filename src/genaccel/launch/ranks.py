"""Who started this process, and which of how many it is: torchrun, Slurm or MPI say so in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

from genaccel.errors import UserError

FIRST_PORT, NUM_PORTS = 20_000, 10_000  # where ports derived from a job's number lie
FIRST_RESERVED_STEP = 0xFFFFFFF0  # from here on Slurm numbers steps that no srun of the user's made: batch, interactive


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run, and where they meet."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_address: str
    master_port: int
    started_by: Literal["torchrun", "slurm", "mpi"]


def detect(environment: Mapping[str, str] = os.environ) -> Ranks | None:
    """What the environment says, or None when this process was started on its own.

    Raises ``UserError`` when it says only half. MPI goes before Slurm: under mpirun in a job, Slurm's variables describe
    the step that started MPI's daemons. Slurm goes before a lone WORLD_SIZE, which job scripts export for srun.
    """
    if "RANK" in environment:
        return _torchrun(environment)
    if "OMPI_COMM_WORLD_RANK" in environment:
        return _mpi(environment, "OMPI_COMM_WORLD_", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    in_step = _in_slurm_step(environment)
    by_hydra = "MPI_LOCALRANKID" in environment or not in_step  # srun sets PMI_RANK, but no local rank
    if by_hydra and "PMI_RANK" in environment and _number(environment, "PMI_SIZE") > 1:
        return _mpi(environment, "", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    if in_step:
        return _slurm(environment)
    return _torchrun(environment) if "WORLD_SIZE" in environment else None


def _in_slurm_step(environment: Mapping[str, str]) -> bool:
    """Whether srun started this as one of several tasks; not so in a shell that srun --pty opened."""
    if not environment.get("SLURM_STEP_ID") or "SLURM_PTY_PORT" in environment:
        return False
    if _number(environment, "SLURM_STEP_ID") >= FIRST_RESERVED_STEP:
        return False
    return _number(environment, "SLURM_STEP_NUM_TASKS", 1) > 1


def export(ranks: Ranks, environment: MutableMapping[str, str] = os.environ) -> None:
    """Say it as torch.distributed's 'env://' reads it."""
    environment.update(
        RANK=str(ranks.rank),
        WORLD_SIZE=str(ranks.world_size),
        LOCAL_RANK=str(ranks.local_rank),
        LOCAL_WORLD_SIZE=str(ranks.local_world_size),
        MASTER_ADDR=ranks.master_address,
        MASTER_PORT=str(ranks.master_port),
    )


def _torchrun(environment: Mapping[str, str]) -> Ranks:
    rank, world = _number(environment, "RANK"), _number(environment, "WORLD_SIZE")
    return _checked(
        Ranks(
            rank,
            world,
            _number(environment, "LOCAL_RANK", rank),
            _number(environment, "LOCAL_WORLD_SIZE", world),
            _text(environment, "MASTER_ADDR"),
            _number(environment, "MASTER_PORT"),
            "torchrun",
        )
    )


def _slurm(environment: Mapping[str, str]) -> Ranks:
    rank = _number(environment, "SLURM_PROCID")
    tasks = environment.get("SLURM_STEP_TASKS_PER_NODE") or environment.get("SLURM_TASKS_PER_NODE", "")
    node = _number(environment, "SLURM_NODEID", 0)
    address = environment.get("MASTER_ADDR") or first_host(_text(environment, "SLURM_STEP_NODELIST"))
    # Every process derives the same port from the job and its step, so that two steps on a node do not meet.
    job, step = _number(environment, "SLURM_JOB_ID"), _number(environment, "SLURM_STEP_ID")
    port = _number(environment, "MASTER_PORT", FIRST_PORT + (job * 17 + step) % NUM_PORTS)
    world = _number(environment, "SLURM_STEP_NUM_TASKS")
    counts = tasks_per_node(tasks)
    local_rank = _number(environment, "SLURM_LOCALID")
    local = counts[node] if node < len(counts) else local_rank + 1
    return _checked(Ranks(rank, world, local_rank, local, address, port, "slurm"))


def _mpi(environment: Mapping[str, str], prefix: str, *names: str) -> Ranks:
    # No default for the local ones: that all processes share a machine would be a guess, and a wrong one hangs.
    rank, world, local_rank, local_world = (_number(environment, prefix + name) for name in names)
    address = environment.get("MASTER_ADDR") or ("127.0.0.1" if local_world == world else "")
    if not address:
        raise UserError(
            "MPI started processes on several machines but does not say where they can meet.",
            "Export MASTER_ADDR, the first machine's name, to all of them (mpirun -x MASTER_ADDR).",
        )
    return _checked(
        Ranks(rank, world, local_rank, local_world, address, _number(environment, "MASTER_PORT", FIRST_PORT), "mpi")
    )


def _checked(ranks: Ranks) -> Ranks:
    if not 0 <= ranks.rank < ranks.world_size:
        raise UserError(
            f"This process is number {ranks.rank} of {ranks.world_size}, says its environment ({ranks.started_by}).",
            "Ranks count from 0; see how it was started.",
        )
    if not 0 <= ranks.local_rank < ranks.local_world_size <= ranks.world_size:
        raise UserError(
            f"This process is number {ranks.local_rank} of {ranks.local_world_size} on its machine and there are "
            f"{ranks.world_size} in all, says its environment ({ranks.started_by}).",
            "See how it was started.",
        )
    return ranks


def _text(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise UserError(f"The environment says that processes were started together, but not {name}.", f"Set {name}.")
    return environment[name]


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not environment.get(name):
        return default
    text = _text(environment, name)
    if not (text.isascii() and text.isdigit()):
        raise UserError(f"The environment variable {name} is '{text}', which is no number.", f"Set {name} to a number.")
    return int(text)


def first_host(nodes: str) -> str:
    """The first name of a Slurm list of nodes such as ``gpu[03-05,9],login1`` or ``rack[0-1]n[01-16]``."""
    first = re.match(r"(?:[^,\[\]]|\[\d[^\[\]]*\])+(?=,|$)", nodes)
    if first is None:
        raise UserError(f"'{nodes}' is no list of nodes as Slurm writes it.", "Set MASTER_ADDR to the first machine.")
    return re.sub(r"\[(\d+)[^\]]*\]", r"\1", first[0])


def tasks_per_node(text: str) -> list[int]:
    """Slurm's counts such as ``4(x2),3`` -> [4, 4, 3]."""
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found
