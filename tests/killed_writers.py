"""Writers on one folder of records, one of them killed again and again: what they were told was stored must be there.

    python -m tests.killed_writers --kills 200

A writer notes the id of every record after ``write_record`` has returned. SIGKILL leaves it no chance to tidy up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from genaccel.records import Environment, Figure, Record
from genaccel.store import read_records, write_record

ENVIRONMENT = Environment("cpu", "chip", 1, 2, "chip x 2", "3.11", "linux", {"torch": "2"}, "abc")
LONG = "x" * 50_000  # so that a write takes a while, and a kill often falls into it


@dataclass(frozen=True)
class Outcome:
    """What was found: ids that were promised and are gone, sentences about files that are no records, and counts."""

    lost: set[str]
    problems: list[str]
    num_records: int
    num_promised: int
    num_unfinished: int
    num_kills: int


def write_on(folder: Path, notes: Path, label: str, count: int) -> None:
    """Write ``count`` records, noting each when it is stored."""
    with open(notes, "ab", buffering=0) as told:
        for _ in range(count):
            figure = Figure("perplexity", 1.5, "1", "measured", "protocol")
            record = Record("quantize", label, "m", "real", "cpu", {}, ENVIRONMENT, (figure,), details={"long": LONG})
            write_record(record, folder)
            told.write(f"{record.id}\n".encode())


def kill_writers(folder: Path, num_kills: int, seed: int = 0) -> Outcome:
    """Kill one writer ``num_kills`` times at random moments while another writes undisturbed into the same folder."""
    context = multiprocessing.get_context("fork")
    chance = random.Random(seed)
    runs, notes = folder / "runs", [folder / "steady", folder / "killed"]
    runs.mkdir()
    steady = context.Process(target=write_on, args=(runs, notes[0], "steady", 2 * num_kills))
    steady.start()
    for _ in range(num_kills):
        writer = context.Process(target=write_on, args=(runs, notes[1], "killed", 10**6))
        writer.start()
        time.sleep(chance.uniform(0.002, 0.12))
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join(60)
    steady.join(120)
    assert steady.exitcode == 0
    promised = {line for file in notes if file.exists() for line in file.read_text().split()}
    records, problems = read_records(runs)
    unfinished = list(runs.glob(".*.part"))
    return Outcome(
        promised - {r.id for r in records}, problems, len(records), len(promised), len(unfinished), num_kills
    )


def main() -> None:
    """Say what became of the records."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    with tempfile.TemporaryDirectory() as folder:
        found = kill_writers(Path(folder), parser.parse_args().kills)
    sys.stdout.write(
        f"{found.num_kills} kills: {found.num_promised} records promised, {found.num_records} read, "
        f"{len(found.lost)} lost, {len(found.problems)} torn, {found.num_unfinished} unfinished temporary files\n"
    )


if __name__ == "__main__":
    main()
