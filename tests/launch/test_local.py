"""Real processes that fail in every way: the launcher says which one, why, and in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genaccel.launch.heartbeat import Failure, Sign, read_signs
from genaccel.launch.local import explain

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from genaccel.errors import UserError
from genaccel.launch.heartbeat import Heartbeat

what, folder = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["RANK"])
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
heart = Heartbeat(folder, rank, 4.0)
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    for step in range(400 if what == "told" else 8):
        heart.beat(step, "forward")
        if rank == 1 and step == 4:
            if what == "raises": raise ValueError("a bad day")
            if what == "mistake": raise UserError("The data are wrong.", "Mend them.")
            if what == "killed": os.kill(os.getpid(), signal.SIGKILL)
            if what == "hangs": heart.beat(step, "data"); time.sleep(60)
        heart.beat(step, "backward")
        flag = torch.tensor([float(len(told))])
        dist.all_reduce(flag)
        if flag.item():
            print(f"rank {rank} stopped", flush=True)
            break
        if what == "told": time.sleep(0.05)
    dist.destroy_process_group()
except BaseException as error:
    heart.record_error(error)
    raise
heart.stop()
print("done", rank, flush=True)
"""
PARENT = """
import sys
from pathlib import Path
from genaccel.launch.local import WorkerFailure, launch
script, what, folder = sys.argv[1:]
try:
    launch([script, what, folder], 2, Path(folder), 1, command=(sys.executable,))
except WorkerFailure as error:
    print("FAILURE", error.message, flush=True)
    sys.exit(error.exit_code)
"""


def start(tmp_path, what):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "parent.py").write_text(PARENT)
    (tmp_path / "run").mkdir()
    command = [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "worker.py"), what, str(tmp_path / "run")]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.distributed
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("raises", "Rank 1 failed in step 5 (forward): ValueError: a bad day"),
        ("mistake", "The data are wrong."),
        ("killed", "Rank 1 was ended by SIGKILL in step 5 (forward)."),
        ("hangs", "Rank 1 made no progress for 4 s; it was in step 5 (data)."),
    ],
)
def test_the_process_that_failed_is_named_in_time(tmp_path, what, sentence):
    begin = time.monotonic()
    process = start(tmp_path, what)
    out, err = process.communicate(timeout=60)
    assert f"FAILURE {sentence}" in out, out + err[-2000:]
    assert process.returncode == 1
    # Starting torch twice takes most of it; what hangs is given 3 s by its peer.
    assert time.monotonic() - begin < 45
    signs = read_signs(tmp_path / "run")
    assert len(signs) == 2
    assert not any(Path(f"/proc/{s.pid}").exists() for s in signs.values()), "no process is left behind"


@pytest.mark.distributed
def test_all_well(tmp_path):
    out, err = (process := start(tmp_path, "works")).communicate(timeout=60)
    assert process.returncode == 0, err[-2000:]
    assert out.splitlines() == ["done 0"], "the others' output goes to the run's folder"


@pytest.mark.distributed
def test_sigterm_lets_the_processes_end_by_themselves(tmp_path):
    process = start(tmp_path, "told")
    deadline = time.monotonic() + 40
    while not any(s.rank == 1 and s.step > 2 for s in read_signs(tmp_path / "run").values()):
        assert time.monotonic() < deadline, "it never began"
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err[-2000:]
    assert "rank 0 stopped" in out
    assert "done 0" in out


# --- Who was it? Without processes ------------------------------------------------------------------------------------


def failure(rank, kind="raised", name="RuntimeError", message="x", step=4, phase="forward", when=0.0, waits=False):
    return Failure(kind, rank, step, phase, when, name, message, "", waits, "")


def sign(rank, step=4, phase="forward"):
    return Sign(1, rank, step, phase, 0.0)


LONELY = "Connection closed by peer [127.0.0.1]:1"


@pytest.mark.parametrize(
    ("signs", "failures", "exits", "message"),
    [
        (
            [],
            [failure(0, message=LONELY), failure(1, message="boom", when=9.0)],
            {},
            "Rank 1 failed in step 5 (forward)",
        ),
        ([], [failure(0, when=2.0, message="b"), failure(1, when=1.0, message="a")], {}, "RuntimeError: a"),
        (
            [sign(0), sign(1, 3, "data")],
            [failure(0, message=LONELY)],
            {1: -9},
            "Rank 1 was ended by SIGKILL in step 4 (data)",
        ),
        ([], [failure(0, "stalled", waits=True), failure(1, "stalled", step=4)], {}, "Rank 1 made x"),
        ([], [failure(0, "stalled", step=4), failure(1, "stalled", step=3)], {}, "Rank 1 made x"),
        ([sign(0), sign(1, 4, "data")], [failure(0, message="Timed out")], {1: -15}, "Rank 1 left the others waiting"),
        ([], [], {0: 1, 1: 1}, "rank 0 with 1, rank 1 with 1"),
    ],
)
def test_the_cause_is_found_among_its_consequences(signs, failures, exits, message):
    found = explain({s.rank: s for s in signs}, {f.rank: f for f in failures}, exits)
    assert message in found.message
