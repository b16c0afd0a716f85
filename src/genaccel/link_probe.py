"""Measure what processes on this machine can send each other: started once for each of them by ``measure_links``.

An all-reduce over n processes makes each of them send 2 (n - 1) / n of the tensor: bytes sent over time is what its links
carry in one direction, whatever n is. The time of a tiny all-reduce is latency.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from genaccel.errors import UserError
from genaccel.measure import Samples, repeat
from genaccel.probe import Found

if TYPE_CHECKING:
    from genaccel.devices import Device

LARGE_BYTES, SMALL_BYTES = 64_000_000, 8
TIMEOUT = 60.0


def why_not(device: Device, num_processes: int) -> str | None:
    """Why links between so many processes cannot be measured here; None when they can."""
    if num_processes < 2:
        return "one process has no links"
    cards = device.describe().get("devices")  # a CPU is shared, and has no number of its own
    if cards is not None and int(cards) < num_processes:
        return f"{num_processes} processes need a card each, and there {'is one' if cards == '1' else f'are {cards}'}"
    return None


def measure_links(device: Device, num_processes: int, large_bytes: int = LARGE_BYTES) -> list[Found]:
    """Bandwidth and latency of collectives between ``num_processes`` processes, started here for that."""
    from genaccel.launch.local import launch

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="genaccel-") as name:
        folder = Path(name)
        arguments = [device.NAME, str(large_bytes), name]
        command = (sys.executable, "-m", "genaccel.link_probe")
        launch(arguments, num_processes, folder, max(1, allowed // num_processes), command)
        rows = json.loads((folder / "links.json").read_text(encoding="utf-8"))
    backend = device.collective_backend()
    found = [
        Found(n, v, u, Samples(tuple(s), w), f"{backend}, {num_processes} processes, {note}")
        for n, v, u, s, w, note in rows
    ]
    if not found:
        raise UserError("The processes measured nothing.", "")
    return found


def _work(device: Device, large_bytes: int, folder: Path) -> None:
    """One process's part: all measure the same collectives; the first writes the slowest's times."""
    import torch
    import torch.distributed as dist

    from genaccel.launch.heartbeat import Heartbeat
    from genaccel.launch.ranks import detect, export
    from genaccel.train.group import join

    ranks = detect()
    assert ranks is not None, "this is started by measure_links"
    export(ranks)
    device.use_local(ranks.local_rank)
    heartbeat = Heartbeat(folder, ranks.rank, TIMEOUT)
    try:
        group = join(device, ranks.rank, ranks.world_size, TIMEOUT)
        n = ranks.world_size
        large = torch.ones(large_bytes // 4, device=device.torch_device())
        small = torch.ones(SMALL_BYTES // 4, device=device.torch_device())
        parts = [torch.empty_like(large) for _ in range(n)]
        rows = []
        for name, run, sent, note in (
            ("link", lambda: dist.all_reduce(large), 2 * (n - 1) / n, "all-reduce"),
            ("all_gather_bus", lambda: dist.all_gather(parts, large), n - 1, "all-gather"),
            ("collective_latency", lambda: dist.all_reduce(small), 0.0, f"all-reduce of {SMALL_BYTES} bytes"),
        ):
            heartbeat.beat(0, "waiting")
            group.barrier()
            own = repeat(run, device, num_repeats=5 if sent else 50)
            seconds = [max(times) for times in zip(*(rank[0] for rank in group.gather([own.values])), strict=True)]
            samples = Samples(tuple(seconds), own.num_warmup)
            value = sent * 4 * large.numel() / samples.median if sent else samples.median
            size = f" of {large_bytes / 1e6:g} MB, bytes sent by each" if sent else ""
            rows.append((name, value, "B/s" if sent else "s", seconds, own.num_warmup, note + size))
        if ranks.rank == 0:
            (folder / "links.json").write_text(json.dumps(rows), encoding="utf-8")
        group.barrier()
    except BaseException as error:
        heartbeat.record_error(error)
        os._exit(1)
    heartbeat.stop()
    os._exit(0)  # gloo's destructors join threads that may be waiting for the interpreter


if __name__ == "__main__":
    from genaccel import devices

    _work(devices.get(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
