"""Start a command once for every process, by torch's elastic agent, and say which process failed and why.

When told to end (SIGTERM, and SIGUSR1, which Slurm can send ahead of it) it leaves word for the processes, which write a
checkpoint and end by themselves; Ctrl-C ends them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from genaccel import console
from genaccel.errors import UserError
from genaccel.launch.heartbeat import (
    LAUNCHER,
    PHASES,
    TOLD,
    Failure,
    Sign,
    leave_failure,
    no_progress,
    read_failures,
    read_signs,
)

# What torch, gloo, NCCL and the store say in a process that another one left alone: never the cause.
LONELY = re.compile(
    r"connection (was )?(closed|reset|refused)|broken pipe|remote process|timed out waiting|wait timeout|socket timeout"
    r"|collective operation timeout|nccl communicator was aborted|waiting for clients|failed to recv",
    re.IGNORECASE,
)
LONELY_TYPES = ("RuntimeError", "ConnectionError", "ConnectionResetError", "BrokenPipeError", "TimeoutError")
TOLD_EXIT = 128 + signal.SIGTERM  # of a process that SIGTERM reached while it was loading
GRACE = 5.0  # seconds after which a process that should have ended itself for want of progress is taken to be frozen
NUM_LAST_LINES = 20


class WorkerFailure(UserError):
    """A process of a run failed; the others were ended. Exit code 1, for it is no mistake of the command.

    ``rank`` tells which, where it was one of them.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "", rank: int | None = None) -> None:
        super().__init__(message, hint)
        self.rank = rank


def launch(
    arguments: Sequence[str],
    num_processes: int,
    folder: Path,
    threads_per_process: int | None,
    command: Sequence[str] = (sys.executable, "-m", "genaccel"),
) -> None:
    """Run ``command`` with ``arguments`` in ``num_processes`` processes and wait for them.

    Each finds torchrun's variables in its environment. The first one's output goes to this terminal, the others' to
    ``folder``, where they also leave their signs of life; it must be new. ``WorkerFailure`` names the process that failed
    first.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, launch_agent

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
    if threads_per_process is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(threads_per_process))
    (folder / LAUNCHER).write_text(str(os.getpid()), encoding="utf-8")
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
        with _told(folder), _thawed(folder):
            launch_agent(config, executable, [*first, *arguments])
    except ChildFailedError as error:
        # In the order in which they ended: the agent ends the others after the first.
        exits = {rank: failure.exitcode for rank, failure in error.failures.items()}
        lines = {rank: _last_lines(folder, rank) for rank in exits}
        found = explain(read_signs(folder), read_failures(folder), exits, lines)
        if found.rank is not None and lines.get(found.rank):
            console.note("\n".join([f"The last that rank {found.rank} printed:", *lines[found.rank]]))
        raise found from None
    except Exception as error:
        if type(error).__name__ == "SignalException":  # the agent saw Ctrl-C and ended the processes
            raise KeyboardInterrupt from None
        raise


@contextmanager
def _told(folder: Path) -> Iterator[None]:
    """Being told to end becomes a file that the processes look for; they may not listen to signals yet.

    The agent's own handlers are taken away at the end: they would outlive it.
    """

    def leave_word(*_: object) -> None:
        (folder / TOLD).touch()

    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        signal.signal(signal.SIGTERM, leave_word)
        signal.signal(signal.SIGUSR1, leave_word)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set by Python


@contextmanager
def _thawed(folder: Path) -> Iterator[None]:
    """End a process that can't even end itself: stopped, or stuck in code that keeps the interpreter's lock."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            failures = read_failures(folder)
            for sign in read_signs(folder).values():
                late = time.monotonic() - sign.time
                if late > sign.timeout + GRACE and sign.rank not in failures and _is_running_child(sign.pid):
                    message = no_progress(round(late))
                    at = (sign.rank, sign.step, sign.phase, time.monotonic())
                    leave_failure(folder, Failure("stalled", *at, "", message, "", False, ""))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(sign.pid, signal.SIGKILL)

    thread = threading.Thread(target=watch, name="frozen", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _is_running_child(pid: int) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _last_lines(folder: Path, rank: int) -> list[str]:
    """The end of what a process wrote to its standard error; nothing of the first, which writes to the terminal."""
    found: list[str] = []
    for file in folder.glob(f"*/attempt_0/{rank}/stderr.log"):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        found += [line.rstrip() for line in lines if line.strip()][-NUM_LAST_LINES:]
    return found


# --- Who was it? ------------------------------------------------------------------------------------------------------


def explain(
    signs: Mapping[int, Sign],
    failures: Mapping[int, Failure],
    exits: Mapping[int, int],
    last_lines: Mapping[int, Sequence[str]] | None = None,
) -> WorkerFailure:
    """The first cause among what the processes left: an error of one's own, a death without a word, or who hung.

    A process that only lost its peers, waited for them or was ended with them is named when there is nobody else.
    ``exits`` has the exit codes (negative: the signal) in the order in which the processes ended.
    """
    raised = sorted((f for f in failures.values() if f.kind == "raised"), key=lambda f: f.time)
    own = [f for f in raised if not _is_lonely(f) and not _was_told(f)]
    if own:
        return _raised(own[0])
    hung = _hung(signs, failures)
    ended_with_others = (0, -signal.SIGTERM, TOLD_EXIT)
    died = [rank for rank, code in exits.items() if rank not in failures and code not in ended_with_others]
    if died and (not hung or next(iter(exits)) == died[0]):
        return _died(died[0], exits[died[0]], signs.get(died[0]), (last_lines or {}).get(died[0], ()))
    if hung:
        first = min(hung, key=lambda f: (f.waits, f.step, PHASES.index(f.phase), f.rank))
        return WorkerFailure(f"Rank {first.rank} made {first.message}; it was {_when(first)}.", _go_on(), first.rank)
    lonely = [f for f in raised if _is_lonely(f)]
    behind = [s for rank, s in signs.items() if rank not in failures and exits.get(rank) != 0]
    if lonely and behind:
        last = min(behind, key=lambda s: (s.step, PHASES.index(s.phase)))
        return WorkerFailure(f"Rank {last.rank} left the others waiting; it was {_when(last)}.", _go_on(), last.rank)
    if lonely:
        return _raised(lonely[0])
    if raised:
        return WorkerFailure(f"The processes were told to end {_when(raised[0])}.", _go_on())
    rank, code = next(iter(exits.items()))
    return _died(rank, code, signs.get(rank), (last_lines or {}).get(rank, ()))


def _raised(failure: Failure) -> WorkerFailure:
    # The same mistake is found by every process; it is the command's, not one process's.
    if failure.name == "UserError":
        return WorkerFailure(failure.message, failure.hint)
    said = f"Rank {failure.rank} failed {_when(failure)}: {failure.name}: {failure.message}"
    return WorkerFailure(said, _go_on(), failure.rank)


def _died(rank: int, code: int, sign: Sign | None, last_lines: Sequence[str]) -> WorkerFailure:
    when = _when(sign) if sign is not None else "before it began"
    if code < 0:
        name = signal.Signals(-code).name
        hint = f"The system may have run out of memory. {_go_on()}" if name == "SIGKILL" else _go_on()
        return WorkerFailure(f"Rank {rank} was ended by {name} {when}.", hint, rank)
    said = f": {last_lines[-1]}" if last_lines else "."
    hint = "See what it printed above." if rank == 0 or last_lines else _go_on()
    return WorkerFailure(f"Rank {rank} ended with exit code {code} {when}{said}", hint, rank)


def _hung(signs: Mapping[int, Sign], failures: Mapping[int, Failure]) -> list[Failure]:
    """Processes that stalled, and those that were silent for long when another one failed for want of them."""
    found = [f for f in failures.values() if f.kind == "stalled"]
    if not failures:
        return found
    first = min(f.time for f in failures.values())
    for rank, sign in signs.items():
        silent = first - sign.time
        if rank not in failures and silent > sign.timeout / 2:
            message = no_progress(round(silent))
            found.append(Failure("stalled", rank, sign.step, sign.phase, sign.time, "", message, "", False, ""))
    return found


def _is_lonely(failure: Failure) -> bool:
    """Whether it only says that others are gone. torch's own types of errors of the network and the store all do."""
    if failure.name in ("DistNetworkError", "DistStoreError"):
        return True
    return failure.name in (*LONELY_TYPES, "DistBackendError") and LONELY.search(failure.message) is not None


def _was_told(failure: Failure) -> bool:
    return failure.name == "SystemExit" and failure.message == str(TOLD_EXIT)


def _when(sign: Sign | Failure) -> str:
    return "while loading" if sign.phase == "loading" else f"in step {sign.step + 1} ({sign.phase})"


def _go_on() -> str:
    return "Checkpoints of earlier steps are whole; the same command goes on from the last one."
