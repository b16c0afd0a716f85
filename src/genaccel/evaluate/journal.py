"""What an evaluation has found so far, so that an interrupted one goes on: one line of JSON for each example.

A journal is a file whose name is a hash of everything that its results depend on (model, data, protocol, device): a run
that differs in any of these finds another file. Lines are flushed in batches; a last line that was torn is dropped.
Floats are written so that they read back exactly, so a resumed run gives the figures of an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from genaccel import console
from genaccel.store import explain_os_error

FOLDER = ".unfinished"
"""Journals lie in this folder beside the records until the record is written."""


def key_of(identity: Mapping[str, Any]) -> str:
    """The name of the journal for ``identity``."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:20]


class Journal:
    """Results by example index. With ``folder`` None they are only kept in memory.

    A second run of the same evaluation at the same time keeps its results in memory.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, Any]) -> None:
        self.results: dict[int, Any] = {}
        self._file: Any = None
        self._lock: FileLock | None = None
        if folder is None:
            return
        self.path = folder / FOLDER / f"{key_of(identity)}.jsonl"
        with explain_os_error(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.path.with_suffix(".lock"))
            try:
                lock.acquire(timeout=0)
            except Timeout:
                console.note("Another run makes the same evaluation; this one could not go on if it were interrupted.")
                return
            self._lock = lock
            if self.path.exists():
                self._read()
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115 - closed by close()

    def _read(self) -> None:
        whole = 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                index, result = json.loads(line)
            except (ValueError, TypeError):
                break
            if not line.endswith(b"\n"):
                break
            self.results[index] = result
            whole += len(line)
        os.truncate(self.path, whole)
        if self.results:
            console.note(f"Going on with an interrupted evaluation: {len(self.results)} results are there.")

    def keep(self, index: int, result: Any) -> None:
        """Add the result (JSON) of one example."""
        self.results[index] = result
        if self._file:
            with explain_os_error(self.path):
                self._file.write(json.dumps([index, result]) + "\n")
                self._file.flush()

    def close(self, finished: bool = False) -> None:
        """Let go of the file; a ``finished`` evaluation is in a record by now, and its journal is deleted."""
        if self._lock is None:
            return
        if self._file:
            self._file.close()
        lock, self._lock, self._file = self._lock, None, None
        if finished:
            self.path.unlink(missing_ok=True)
        lock.release()
        if finished:
            with contextlib.suppress(OSError):  # others may still use the folder
                Path(lock.lock_file).unlink(missing_ok=True)
                self.path.parent.rmdir()
