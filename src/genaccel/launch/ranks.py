"""Who started this process, and which of how many it is: torchrun, Slurm or MPI say so in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

from genaccel.errors import UserError

FIRST_PORT, NUM_PORTS = 20_000, 10_000  # where ports derived from a job's number lie


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
    """What the environment says, or None when this process was started on its own."""
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _torchrun(environment)
    if environment.get("SLURM_STEP_ID", "").isdigit() and _number(environment, "SLURM_STEP_NUM_TASKS", 1) > 1:
        return _slurm(environment)
    if "OMPI_COMM_WORLD_RANK" in environment:
        return _mpi(environment, "OMPI_COMM_WORLD_", "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    if "PMI_RANK" in environment and _number(environment, "PMI_SIZE", 1) > 1:
        return _mpi(environment, "", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
    return None


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
    local = counts[node] if node < len(counts) else 1
    return _checked(Ranks(rank, world, _number(environment, "SLURM_LOCALID"), local, address, port, "slurm"))


def _mpi(environment: Mapping[str, str], prefix: str, *names: str) -> Ranks:
    rank, world = (_number(environment, prefix + n) for n in names[:2])
    local_rank, local_world = (
        _number(environment, prefix + names[2], rank),
        _number(environment, prefix + names[3], world),
    )
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
    return ranks


def _text(environment: Mapping[str, str], name: str) -> str:
    if not environment.get(name):
        raise UserError(f"The environment says that processes were started together, but not {name}.", f"Set {name}.")
    return environment[name]


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    if default is not None and not environment.get(name):
        return default
    text = _text(environment, name)
    if not text.isdigit():
        raise UserError(f"The environment variable {name} is '{text}', which is no number.", f"Set {name} to a number.")
    return int(text)


def first_host(nodes: str) -> str:
    """The first name of a Slurm list of nodes such as ``gpu[03-05,9],login1``."""
    match = re.match(r"([^,\[]*)(?:\[(\d+)[^\]]*\])?([^,\[]*)", nodes)
    assert match is not None, "an expression that matches the empty string matches"
    return f"{match[1]}{match[2] or ''}{match[3]}"


def tasks_per_node(text: str) -> list[int]:
    """Slurm's counts such as ``4(x2),3`` -> [4, 4, 3]."""
    found: list[int] = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        found += [int(count)] * int(times or 1)
    return found
