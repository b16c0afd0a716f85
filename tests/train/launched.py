"""Start this folder's worker under torch's own launcher and read what it printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_jobs(model: Path, jobs: list[dict], num_processes: int) -> dict:
    """Results of tests.train.equal_losses by job name."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    worker = ["-m", "tests.train.equal_losses", str(model), json.dumps(jobs)]
    command = [sys.executable, *(launcher if num_processes > 1 else ()), *worker]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    return json.loads(lines[0].removeprefix("RESULT "))
