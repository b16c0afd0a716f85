"""Start a command once for every process, by torch's elastic agent, and say which process failed and why.

SIGTERM is passed on to the processes, which write a checkpoint and end by themselves; Ctrl-C ends them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genaccel.errors import UserError
from genaccel.launch.heartbeat import PHASES, TOLD, Failure, Sign, read_failures, read_signs

# What a process says when another one left it alone: never the cause.
LONELY = (
    "connection closed by peer",
    "connection reset",
    "timed out",
    "timeout",
    "broken pipe",
    "peer",
    "nccl",
    "store",
)
GRACE = 5.0  # seconds that a collective may take longer than a process that hangs is given


class WorkerFailure(UserError):
    """A process of a run failed; the others were ended. Exit code 1, for it is no mistake of the command."""

    exit_code = 1


def launch(
    arguments: Sequence[str],
    num_processes: int,
    folder: Path,
    threads_per_process: int | None,
    command: Sequence[str] = (sys.executable, "-m", "genaccel"),
) -> None:
    """Run ``command`` with ``arguments`` in ``num_processes`` processes and wait for them.

    Each finds torchrun's variables in its environment. The first one's output goes to this terminal, the others' to
    ``folder``, where they also leave their signs of life. ``WorkerFailure`` names the process that failed first.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, launch_agent

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    if threads_per_process is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_process))
    others = dict.fromkeys(range(1, num_processes), Std.ALL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_processes,
        run_id=f"genaccel-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        local_addr="localhost",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder), redirects=others),
        signals_to_handle="SIGINT,SIGHUP,SIGQUIT",
    )
    executable, *first = command
    try:
        with _passed_on(folder):
            launch_agent(config, executable, [*first, *arguments])
    except ChildFailedError as error:
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        raise explain(read_signs(folder), read_failures(folder), exits) from None
    except Exception as error:
        if type(error).__name__ == "SignalException":  # the agent saw Ctrl-C and ended the processes
            raise KeyboardInterrupt from None
        raise


@contextmanager
def _passed_on(folder: Path) -> Iterator[None]:
    """SIGTERM goes to the processes; this one waits for them to end."""

    def pass_on(number: int, _frame: Any) -> None:
        (folder / TOLD).touch()
        for sign in read_signs(folder).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(sign.pid, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def explain(signs: dict[int, Sign], failures: dict[int, Failure], exits: dict[int, int]) -> WorkerFailure:
    """The first cause among what the processes left: an error of one's own, a killing, or who hung.

    A process that only lost its peers, or waited for them, is named when there is nobody else.
    """
    own = [f for f in failures.values() if f.kind == "raised" and not _is_lonely(f)]
    if own:
        first = min(own, key=lambda f: f.time)
        # The same mistake is found by every process; it is the command's, not one process's.
        if first.name == "UserError":
            return WorkerFailure(first.message, first.hint)
        return WorkerFailure(f"Rank {first.rank} failed {_when(first)}: {first.name}: {first.message}", _go_on())
    killed = {rank: -code for rank, code in exits.items() if code < 0 and rank not in failures}
    if failures:  # SIGTERM is how the agent ends the others
        killed = {rank: number for rank, number in killed.items() if number != signal.SIGTERM}
    stalled = [f for f in failures.values() if f.kind == "stalled"]
    if killed and not stalled:
        rank = min(killed)
        when = f" {_when(signs[rank])}" if rank in signs else ""
        name = signal.Signals(killed[rank]).name
        hint = "The system may have run out of memory." if name == "SIGKILL" else ""
        return WorkerFailure(f"Rank {rank} was ended by {name}{when}.", f"{hint} {_go_on()}".strip())
    if stalled:
        culprit = min(stalled, key=lambda f: (f.waits, f.step, PHASES.index(f.phase), f.rank))
        return WorkerFailure(f"Rank {culprit.rank} made {culprit.message}; it was {_when(culprit)}.", _go_on())
    behind = [s for rank, s in signs.items() if rank not in failures]
    if behind:
        last = min(behind, key=lambda s: (s.step, PHASES.index(s.phase)))
        return WorkerFailure(f"Rank {last.rank} left the others waiting; it was {_when(last)}.", _go_on())
    if failures:
        first = min(failures.values(), key=lambda f: f.time)
        return WorkerFailure(f"Rank {first.rank} failed {_when(first)}: {first.name}: {first.message}", _go_on())
    codes = ", ".join(f"rank {rank} with {code}" for rank, code in sorted(exits.items()))
    return WorkerFailure(f"Processes ended before they began ({codes}).", "See what they printed above.")


def _is_lonely(failure: Failure) -> bool:
    text = failure.message.lower()
    return failure.name != "UserError" and any(phrase in text for phrase in LONELY)


def _when(sign: Sign | Failure) -> str:
    return "while loading" if sign.phase == "loading" else f"in step {sign.step + 1} ({sign.phase})"


def _go_on() -> str:
    return "Checkpoints of earlier steps are whole; the same command goes on from the last one."
