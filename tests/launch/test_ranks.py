"""Who started this process: tables of environments as torchrun, Slurm, Open MPI and Hydra set them."""

from __future__ import annotations

import pytest

from genaccel.errors import UserError
from genaccel.launch.ranks import Ranks, detect, export, first_host, tasks_per_node

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_JOB_ID": "123",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "4,3",
    "SLURM_STEP_NODELIST": "gpu[03-04]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}
HYDRA = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, Ranks(3, 4, 1, 2, "node1", 29500, "torchrun")),
        (SLURM, Ranks(5, 7, 1, 3, "gpu03", 20_000 + 123 * 17, "slurm")),
        (SLURM | {"MASTER_ADDR": "login", "MASTER_PORT": "7"}, Ranks(5, 7, 1, 3, "login", 7, "slurm")),
        (OPEN_MPI, Ranks(1, 2, 1, 2, "127.0.0.1", 20_000, "mpi")),
        (HYDRA, Ranks(0, 2, 0, 2, "127.0.0.1", 20_000, "mpi")),
        # A job script exports these for srun, which gives each task its rank.
        (SLURM | {"WORLD_SIZE": "7", "MASTER_ADDR": "login"}, Ranks(5, 7, 1, 3, "login", 22_091, "slurm")),
        # srun --mpi=pmi2
        (SLURM | {"PMI_RANK": "5", "PMI_SIZE": "7"}, Ranks(5, 7, 1, 3, "gpu03", 22_091, "slurm")),
        # mpirun in a job: Slurm's variables describe MPI's daemons.
        (SLURM | OPEN_MPI, Ranks(1, 2, 1, 2, "127.0.0.1", 20_000, "mpi")),
        (SLURM | HYDRA, Ranks(0, 2, 0, 2, "127.0.0.1", 20_000, "mpi")),
        # torchrun as a task of srun
        (SLURM | TORCHRUN, Ranks(3, 4, 1, 2, "node1", 29500, "torchrun")),
    ],
)
def test_whoever_started_it_is_found(environment, expected):
    assert detect(environment) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        SLURM | {"SLURM_STEP_NUM_TASKS": "1"},
        {k: v for k, v in SLURM.items() if k != "SLURM_STEP_ID"},  # a batch script, outside srun
        SLURM | {"SLURM_STEP_ID": "4294967290"},  # the shell of salloc
        SLURM | {"SLURM_STEP_ID": "4294967291"},  # the batch script
        SLURM | {"SLURM_PTY_PORT": "41771"},  # a shell by srun --pty
        HYDRA | {"PMI_SIZE": "1"},
    ],
)
def test_a_process_on_its_own_has_no_ranks(environment):
    assert detect(environment) is None


def test_all_processes_of_a_step_meet_at_one_port_and_steps_at_others():
    ports = {detect(SLURM | {"SLURM_PROCID": str(i)}).master_port for i in range(7)}
    other = detect(SLURM | {"SLURM_STEP_ID": "1"}).master_port
    assert len(ports) == 1
    assert other not in ports


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"RANK": "0"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "not RANK"),
        ({"PMI_RANK": "0"}, "PMI_SIZE"),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, "MPI_LOCALRANKID"),
        (TORCHRUN | {"RANK": "4"}, "number 4 of 4"),
        (TORCHRUN | {"LOCAL_RANK": "2"}, "number 2 of 2 on its machine"),
        (TORCHRUN | {"RANK": "\N{SUPERSCRIPT TWO}"}, "no number"),
        (TORCHRUN | {"RANK": "one"}, "'one'"),
        ({k: v for k, v in TORCHRUN.items() if k != "MASTER_ADDR"}, "MASTER_ADDR"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_SIZE": "4"}, "several machines"),
    ],
)
def test_half_an_environment_is_named(environment, words):
    with pytest.raises(UserError) as caught:
        detect(environment)
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("node7", "node7"),
        ("gpu[03-05,9],login1", "gpu03"),
        ("a,b", "a"),
        ("rack[1,4]-gpu", "rack1-gpu"),
        ("x[007]", "x007"),
        ("rack[0-1]n[03-16],y", "rack0n03"),
    ],
)
def test_the_first_host_of_a_node_list(nodes, host):
    assert first_host(nodes) == host


@pytest.mark.parametrize("nodes", ["", ",a", "x[", "x[]", "x[1-2"])
def test_what_is_no_node_list_is_said(nodes):
    with pytest.raises(UserError, match="no list of nodes"):
        first_host(nodes)


@pytest.mark.parametrize(("text", "counts"), [("4", [4]), ("4(x2),3", [4, 4, 3]), ("1(x3)", [1, 1, 1]), ("", [])])
def test_tasks_per_node(text, counts):
    assert tasks_per_node(text) == counts


def test_what_is_exported_is_found_again():
    environment: dict[str, str] = {}
    ranks = detect(SLURM)
    export(ranks, environment)
    again = detect(environment)
    assert (again.rank, again.world_size, again.master_port) == (ranks.rank, ranks.world_size, ranks.master_port)
    assert again.started_by == "torchrun"
