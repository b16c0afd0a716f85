"""Files that are written whole or not at all, and the folder of records.

A record is one JSON file with a name of its own, so several writers can share a folder without locks: each writes
under a temporary name in the same folder, syncs and renames.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from genaccel.errors import UserError
from genaccel.records import Record, record_from_json, record_to_json


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically: temporary name, fsync, rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically: temporary name, fsync, rename."""
    with explain_os_error(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _umask() -> int:
    """Permissions that the user withholds from new files; mkstemp and mkdtemp withhold everybody else's."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that takes its name when the block succeeds and vanishes when it fails.

    An existing checkpoint at ``path`` is replaced only at the end; any other non-empty folder is refused. Where ``path``
    is a link, what it points to is replaced.
    """
    check_output_folder(path)
    with explain_os_error(path):
        path = path.resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
        try:
            os.chmod(temporary, 0o777 & ~_umask())
            yield temporary
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            if path.exists():
                old = path.with_name(f".{path.name}.{os.getpid()}.old")
                os.rename(path, old)
                try:
                    os.rename(temporary, path)
                except BaseException:
                    os.rename(old, path)
                    raise
                shutil.rmtree(old)
            else:
                os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


CHECKPOINT_MARK = "genaccel.json"
TRAINED_MARK = "finetuned.json"
RESOLVER_MARK = "superres.json"
MARKS = (CHECKPOINT_MARK, TRAINED_MARK, RESOLVER_MARK)


def check_output_folder(path: Path) -> None:
    """Refuse an output path that is a file or a folder holding something other than a checkpoint of ours."""
    if path.is_file():
        raise UserError(f"The output {path} is a file.", "Give the name of a folder to create.")
    if path.is_dir() and any(path.iterdir()) and not any((path / m).exists() for m in MARKS):
        raise UserError(
            f"The output folder {path} is not empty and holds no checkpoint of genaccel.",
            "Choose another folder; nothing in it was changed.",
        )
    check_writable(path)


def check_writable(folder: Path) -> None:
    """Refuse a folder that could not be created or written to."""
    parent = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not parent.is_dir():
        raise UserError(f"{parent} is a file, so {folder} cannot be a folder.", "Choose another name.")
    if not os.access(parent, os.W_OK):
        raise UserError(f"The folder {parent} is not writable.", "Choose another folder.")


def check_free_space(folder: Path, num_bytes: int) -> None:
    """Raise ``OSError`` (disk full) before ``num_bytes`` are written to a disk that has no room for them."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise OSError(errno.ENOSPC, f"{num_bytes:,} bytes are needed, {free:,} are free")


@contextlib.contextmanager
def explain_os_error(path: Path) -> Iterator[None]:
    """Turn 'disk full', 'permission denied' and the like into a ``UserError`` that names the path."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"The disk is full: {path} could not be written ({error.strerror}).",
                "Free some space; nothing half-written was left.",
            ) from error
        raise UserError(
            f"{path} could not be written: {error.strerror or error}.", "Check the path and its permissions."
        ) from error


def _sync(file: Path) -> None:
    with open(file, "rb") as handle:
        os.fsync(handle.fileno())


def write_record(record: Record, folder: Path) -> Path:
    """Store a record in ``folder`` under its own name and return the path."""
    path = folder / f"{record.created[:19].replace(':', '')}-{record.job}-{record.id}.json"
    write_text(path, record_to_json(record))
    return path


def read_records(folder: Path) -> tuple[list[Record], list[str]]:
    """All records in ``folder``, oldest first, and one sentence for each file that is not a whole record."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {folder}.", "Name the folder that 'genaccel quantize' wrote its records to."
        )
    records, problems = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            records.append(record_from_json(path.read_text(encoding="utf-8"), str(path)))
        except UserError as error:
            problems.append(str(error))
        except (UnicodeDecodeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            problems.append(f"The record {path} cannot be read: {reason}.")
    return sorted(records, key=lambda r: (r.created, r.id)), problems
