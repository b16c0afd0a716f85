"""What a process sends and receives: bytes and calls of every step, and for how long.

Bytes come from torch's flight recorder, which notes every collective of every strategy with its sizes. How long they
took comes from the profiler; it slows a step down, so it looks at warm-up steps only, which count for nothing else.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from genaccel.train.group import Group

UNKNOWN = math.nan
Interval = tuple[float, float]
RECORDED = 20_000  # collectives that the flight recorder remembers: more than a step has

# The element types as the flight recorder spells them.
ELEMENT_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """One step's communication. ``num_bytes`` are the messages' own sizes, as nccl-tests counts them: the gathered whole
    for a gather, the buffer for a reduction; what a link carries depends on the algorithm."""

    num_bytes: float = 0.0
    num_calls: float = 0.0
    seconds: float = 0.0
    exposed_seconds: float = 0.0


def record_collectives() -> None:
    """Have torch remember collectives; call it before the process group is made."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", str(RECORDED))
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler says on standard error when it starts and stops


class Traffic:
    """Counts what this process communicates between ``begin`` and ``end``."""

    def __init__(self, group: Group, num_profiled: int = 0) -> None:
        """The second step and those after it are profiled, until ``num_profiled`` were."""
        self.group, self._to_profile, self._first = group, num_profiled, True
        self._profiler: Any = None
        self._after = self._wall = self._running = 0.0

    def begin(self) -> None:
        """A step begins."""
        if self.group.world_size == 1:
            return
        if not self._first and self._to_profile:
            self._to_profile -= 1
            self._profiler = _profiler(self.group.device.NAME)
            self._profiler.__enter__()
        self._first = False
        self._after = time.time_ns()
        self._wall, self._running = time.perf_counter(), time.thread_time()

    def end(self) -> Sent:
        """The step is over and the device is done."""
        if self.group.world_size == 1:
            return Sent()
        stood_still = (time.perf_counter() - self._wall) - (time.thread_time() - self._running)
        exposed = max(0.0, stood_still) if self.group.device.NAME == "cpu" else UNKNOWN
        seconds = UNKNOWN
        if self._profiler is not None:
            self._profiler.__exit__(None, None, None)
            communicating, computing = _intervals(self._profiler)
            self._profiler = None
            seconds = total(communicating)
            if self.group.device.NAME != "cpu":
                exposed = total(without(communicating, computing))
        calls = [message_bytes(e) for e in _entries() if e["time_created_ns"] >= self._after]
        if not calls:  # torch without a flight recorder for this backend
            return Sent(UNKNOWN, UNKNOWN, seconds, exposed)
        return Sent(float(sum(calls)), float(len(calls)), seconds, exposed)


def _entries() -> list[dict[str, Any]]:
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return []
    return list(json.loads(dump(True, False)).get("entries", []))


def message_bytes(entry: dict[str, Any]) -> int:
    """Size of one collective's message: the larger of what goes in and what comes out."""

    def size(side: str) -> int:
        shapes: list[list[int]] = entry.get(f"{side}_sizes", [])
        kinds: list[str] = entry.get(f"{side}_dtypes", [])
        return sum(math.prod(shape) * ELEMENT_BYTES.get(kind, 1) for shape, kind in zip(shapes, kinds, strict=False))

    return max(size("input"), size("output"))


# --- Time -------------------------------------------------------------------------------------------------------------


def _profiler(device_name: str) -> Any:
    if device_name == "cpu":
        return torch.autograd.profiler.profile(use_kineto=False)
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU])


def _intervals(profiler: Any) -> tuple[list[Interval], list[Interval]]:
    """(collectives, computing kernels) as seconds; on a CPU only the former, for nothing else is told apart there."""
    if hasattr(profiler, "function_events"):
        events = [e for e in profiler.function_events if e.is_async and e.name.startswith("gloo:")]
        return [(e.time_range.start / 1e6, e.time_range.end / 1e6) for e in events], []
    kernels = [e for e in profiler.events() if "CUDA" in str(e.device_type)]
    spans = [("nccl" in e.name.lower(), (e.time_range.start / 1e6, e.time_range.end / 1e6)) for e in kernels]
    return [s for is_collective, s in spans if is_collective], [s for is_collective, s in spans if not is_collective]


def union(intervals: Sequence[Interval]) -> list[Interval]:
    """The intervals merged where they overlap, in order."""
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def total(intervals: Sequence[Interval]) -> float:
    """Seconds covered by at least one interval."""
    return sum(stop - start for start, stop in union(intervals))


def without(intervals: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What of ``intervals`` no other interval covers: communication that nothing hides."""
    left = union(intervals)
    for low, high in union(others):
        left = [
            piece
            for start, stop in left
            for piece in ((start, min(stop, low)), (max(start, high), stop))
            if piece[0] < piece[1]
        ]
    return left
