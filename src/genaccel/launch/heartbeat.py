"""Signs of life: what a process is doing, for the launcher to tell which one failed, hung or was killed.

Each process keeps one small file up to date, mapped into its memory: a sign costs a microsecond and outlives a
killed process. A thread ends the process when it has shown no sign for too long: others would wait for it for ever.
The same thread notices that the launcher is gone, for then nobody would end the process if it had to be.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError

PHASES = ("loading", "data", "forward", "backward", "waiting", "optimizer", "checkpoint")
INTERVAL = 0.2  # seconds between looks
STALLED_EXIT = 70
TOLD = "told-to-end"  # a file that the launcher leaves when it is told to end
LAUNCHER = "launcher"  # a file with the launcher's process number
SIGN = struct.Struct("<qqqqdd")  # pid, rank, step, index of the phase, time, timeout


@dataclass(frozen=True)
class Sign:
    """The last that was heard of a process, at ``time`` of this machine's monotonic clock, in seconds."""

    pid: int
    rank: int
    step: int
    phase: str
    time: float
    timeout: float = math.inf


@dataclass(frozen=True)
class Failure:
    """Why a process ended, as it wrote it itself, at ``time`` of this machine's monotonic clock, in seconds.

    ``waits`` tells one that stood in a collective when it stalled.
    """

    kind: Literal["raised", "stalled"]
    rank: int
    step: int
    phase: str
    time: float
    name: str
    message: str
    hint: str
    waits: bool
    trace: str


class Heartbeat:
    """The signs of one process, in ``folder``."""

    def __init__(self, folder: Path, rank: int, timeout_seconds: float) -> None:
        """Start the thread. ``timeout_seconds`` without a beat end the process with code 70.

        The launcher that left its number in ``folder`` must be this process's parent.
        """
        self.folder, self.rank, self.timeout = folder, rank, timeout_seconds
        self._main = threading.get_ident()
        self._now = (0, "loading", time.monotonic())
        self._stop = threading.Event()
        launcher = folder / LAUNCHER
        self._launcher = int(launcher.read_text()) if launcher.exists() else None
        self._left_alone = False
        path = folder / f"rank-{rank}.sign"
        path.write_bytes(bytes(SIGN.size))
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), SIGN.size)
        self.beat(0, "loading")
        self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self, step: int, phase: str) -> None:
        """The process is in ``phase`` of ``step`` (counted from 0)."""
        self._now = (step, phase, time.monotonic())
        self._show(self.timeout)

    def _show(self, timeout: float) -> None:
        step, phase, when = self._now
        SIGN.pack_into(self._page, 0, os.getpid(), self.rank, step, PHASES.index(phase), when, timeout)

    def told_to_end(self) -> bool:
        """Whether the launcher was told to end, or is gone: a signal to a process that still loads would be lost."""
        return self._left_alone or (self.folder / TOLD).exists()

    def stop(self) -> None:
        """No more signs will come, and none is missed."""
        self._stop.set()
        self._thread.join()
        self._show(math.inf)

    def record_error(self, error: BaseException) -> None:
        """Leave the reason why this process ends."""
        self.stop()
        text = error.message if isinstance(error, UserError) else (str(error) or type(error).__name__)
        hint = error.hint if isinstance(error, UserError) else ""
        trace = "".join(traceback.format_exception(error))
        self._leave("raised", type(error).__name__, text, hint, False, trace)

    def _watch(self) -> None:
        while not self._stop.wait(INTERVAL):
            if self._launcher is not None and os.getppid() != self._launcher:
                self._left_alone = True
            if time.monotonic() - self._now[2] > self.timeout:
                self._end()

    def _end(self) -> None:
        frame = sys._current_frames().get(self._main)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        waits = "torch/distributed" in stack or "deepspeed/comm" in stack or "_engine_run_backward" in stack
        message = no_progress(self.timeout)
        self._leave("stalled", "", message, "", waits, stack)
        sys.stderr.write(f"rank {self.rank}: {message}, ending\n{stack}")
        sys.stderr.flush()
        os._exit(STALLED_EXIT)

    def _leave(
        self, kind: Literal["raised", "stalled"], name: str, message: str, hint: str, waits: bool, trace: str
    ) -> None:
        step, phase, _ = self._now
        leave_failure(
            self.folder, Failure(kind, self.rank, step, phase, time.monotonic(), name, message, hint, waits, trace)
        )


def no_progress(timeout_seconds: float) -> str:
    """What is said of a process that stalled."""
    return f"no progress for {timeout_seconds:g} s"


def leave_failure(folder: Path, failure: Failure) -> None:
    """Write a failure where the launcher looks for it."""
    _replace(folder / f"rank-{failure.rank}.failure.json", asdict(failure))


def _replace(path: Path, content: dict[str, object]) -> None:
    """Write without syncing: it is for a process on the same machine."""
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(json.dumps(content), encoding="utf-8")
    os.replace(temporary, path)


def read_signs(folder: Path) -> dict[int, Sign]:
    """The last sign of every process."""
    found = {}
    for file in folder.glob("rank-*.sign"):
        content = file.read_bytes()
        if len(content) < SIGN.size:  # it is being made
            continue
        pid, rank, step, phase, when, timeout = SIGN.unpack(content)
        if pid:  # nothing but zeros until the first sign
            found[rank] = Sign(pid, rank, step, PHASES[phase], when, timeout)
    return found


def read_failures(folder: Path) -> dict[int, Failure]:
    """What processes wrote when they failed."""
    found = (Failure(**json.loads(file.read_text(encoding="utf-8"))) for file in folder.glob("rank-*.failure.json"))
    return {failure.rank: failure for failure in found}
