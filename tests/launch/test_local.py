"""Real processes that fail in every way: the launcher says which one, why, and in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from genaccel.launch.heartbeat import Failure, Sign, read_signs
from genaccel.launch.local import explain

ROOT = Path(__file__).resolve().parents[2]
WORKER = """
import os, signal, sys, time
from datetime import timedelta
from pathlib import Path
what, folder = sys.argv[1], Path(sys.argv[2])
rank = int(os.environ["RANK"])
if what == "import" and rank == 1: import a_module_that_is_not_there
import torch, torch.distributed as dist
from genaccel.errors import UserError
from genaccel.launch.heartbeat import Heartbeat

if what != "exits": signal.signal(signal.SIGTERM, lambda *_: None)  # as while training
heart = Heartbeat(folder, rank, 4.0)
try:
    dist.init_process_group("gloo", timeout=timedelta(seconds=3))
    for step in range(400 if what == "told" else 8):
        heart.beat(step, "forward")
        if rank == 1 and step == 4:
            if what == "raises": raise ValueError("a bad day")
            if what == "mistake": raise UserError("The data are wrong.", "Mend them.")
            if what == "killed": os.kill(os.getpid(), signal.SIGKILL)
            if what == "exits": os._exit(3)
            if what == "frozen": os.kill(os.getpid(), signal.SIGSTOP)
            if what == "hangs": heart.beat(step, "data"); time.sleep(60)
        heart.beat(step, "backward")
        if what == "exits": time.sleep(0.5)  # notices nothing before it is ended
        flag = torch.tensor([float(heart.told_to_end())])
        dist.all_reduce(flag)
        if flag.item():
            (folder / f"stopped-{rank}").touch()
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
import signal, sys
from pathlib import Path
from genaccel.launch.local import WorkerFailure, launch
script, what, folder = sys.argv[1:]
before = signal.getsignal(signal.SIGINT)  # ignored, where these tests run in the background
try:
    launch([script, what, folder], 2, Path(folder), 1, command=(sys.executable,))
except WorkerFailure as error:
    print("FAILURE", error.message, flush=True)
    sys.exit(error.exit_code)
finally:
    assert signal.getsignal(signal.SIGINT) is before, "Ctrl-C does what it did before"
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
        pytest.param("frozen", r"Rank 1 made no progress for * s; it was in step 5 (forward).", marks=pytest.mark.slow),
        ("exits", "Rank 1 ended with exit code 3 in step 5 (forward)."),
    ],
)
def test_the_process_that_failed_is_named_in_time(tmp_path, what, sentence):
    begin = time.monotonic()
    process = start(tmp_path, what)
    out, err = process.communicate(timeout=60)
    assert fnmatch(out, f"*FAILURE {sentence}*"), out + err[-2000:]
    assert process.returncode == 1
    # Starting torch twice takes most of it; what hangs is given 3 s by its peer.
    assert time.monotonic() - begin < 45
    signs = read_signs(tmp_path / "run")
    assert len(signs) == 2
    assert not any(Path(f"/proc/{s.pid}").exists() for s in signs.values()), "no process is left behind"


@pytest.mark.distributed
def test_what_a_process_said_before_it_began_is_repeated(tmp_path):
    out, err = (process := start(tmp_path, "import")).communicate(timeout=60)
    sentence = "No module named 'a_module_that_is_not_there'"
    assert f"FAILURE Rank 1 ended with exit code 1 before it began: ModuleNotFoundError: {sentence}" in out
    assert "The last that rank 1 printed:\nTraceback" in err, "its traceback is shown, though its output went to a file"
    assert process.returncode == 1


@pytest.mark.distributed
def test_all_well(tmp_path):
    out, err = (process := start(tmp_path, "works")).communicate(timeout=60)
    assert process.returncode == 0, err[-2000:]
    assert out.splitlines() == ["done 0"], "the others' output goes to the run's folder"


def wait_until(happened, what):
    deadline = time.monotonic() + 40
    while not happened():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.distributed
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_told_to_end_the_processes_end_by_themselves(tmp_path, number):
    process = start(tmp_path, "told")
    wait_until(lambda: any(s.rank == 1 and s.step > 2 for s in read_signs(tmp_path / "run").values()), "it never began")
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err[-2000:]
    assert sorted(f.name for f in (tmp_path / "run").glob("stopped-*")) == ["stopped-0", "stopped-1"]
    assert "done 0" in out


@pytest.mark.distributed
def test_told_to_end_while_they_start_they_end_after_the_first_step(tmp_path):
    process = start(tmp_path, "told")
    wait_until((tmp_path / "run" / "launcher").exists, "it never started")
    wait_until(lambda: len(list((tmp_path / "run").glob("*/attempt_0/1/stderr.log"))) == 1, "no process was started")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err[-2000:]
    assert {s.step for s in read_signs(tmp_path / "run").values()} == {0}


@pytest.mark.distributed
def test_processes_whose_launcher_is_gone_end_by_themselves(tmp_path):
    process = start(tmp_path, "told")
    wait_until(lambda: any(s.rank == 1 and s.step > 2 for s in read_signs(tmp_path / "run").values()), "it never began")
    process.kill()
    process.communicate(timeout=30)
    wait_until(lambda: len(list((tmp_path / "run").glob("stopped-*"))) == 2, "they went on")


# --- Who was it? Without processes ------------------------------------------------------------------------------------


def failure(rank, kind="raised", name="RuntimeError", message="x", step=4, phase="forward", when=0.0, waits=False):
    return Failure(kind, rank, step, phase, when, name, message, "", waits, "")


def sign(rank, step=4, phase="forward", when=0.0, timeout=10.0):
    return Sign(1, rank, step, phase, when, timeout)


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
        (
            [sign(0), sign(1, 4, "data")],
            [failure(0, message="Timed out waiting 9ms")],
            {1: -15},
            "Rank 1 left the others waiting",
        ),
        # Words of the network in an error of one's own
        (
            [sign(0), sign(1)],
            [failure(1, message="could not restore the optimizer; its peer timed out")],
            {1: 1, 0: -15},
            "Rank 1 failed in step 5 (forward): RuntimeError: could not restore",
        ),
        ([], [failure(0, message=LONELY), failure(1, name="OSError", message=LONELY, when=9.0)], {}, "Rank 1 failed"),
        # Ended without a word, while the other was ended by SIGTERM or heard of it first
        ([sign(0), sign(1)], [], {1: 3, 0: -15}, "Rank 1 ended with exit code 3 in step 5 (forward)."),
        ([sign(0), sign(1)], [], {1: 3, 0: 143}, "Rank 1 ended with exit code 3 in step 5 (forward)."),
        ([sign(0), sign(1)], [failure(0, message=LONELY)], {0: 1, 1: 3}, "Rank 1 ended with exit code 3 in step 5"),
        ([sign(0), sign(1)], [], {1: -15, 0: -15}, "Rank 1 was ended by SIGTERM in step 5 (forward)."),
        ([sign(0), sign(1)], [], {1: -11, 0: -9}, "Rank 1 was ended by SIGSEGV in step 5 (forward)."),
        ([], [], {0: 1, 1: 1}, "Rank 0 ended with exit code 1 before it began."),
        # It was silent for long when the other gave up waiting, and was killed for it.
        (
            [sign(0, when=1.0), sign(1, 4, "data", when=1.0)],
            [failure(0, message="Timed out waiting 9ms for recv", when=11.0)],
            {0: 1, 1: -9},
            "Rank 1 made no progress for 10 s; it was in step 5 (data).",
        ),
        # Slurm tells every process to end, also those that are still loading.
        (
            [],
            [failure(0, name="SystemExit", message="143", phase="loading"), failure(1, message=LONELY, when=1.0)],
            {0: 143, 1: 1},
            "Rank 1 failed",
        ),
        (
            [],
            [failure(r, name="SystemExit", message="143", phase="loading") for r in (0, 1)],
            {0: 143, 1: 143},
            "The processes were told to end while loading.",
        ),
    ],
)
def test_the_cause_is_found_among_its_consequences(signs, failures, exits, message):
    found = explain({s.rank: s for s in signs}, {f.rank: f for f in failures}, exits)
    assert message in found.message
