"""Files that are written whole or not at all, and the folder of records.

A record is one JSON file with a name of its own, so any number of writers can share a folder, also one on a network
file system, without locks: each writes under a temporary name in the same folder, syncs, and links the whole file to its
name, which fails rather than replace another's.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from genaccel.errors import UserError
from genaccel.records import Record, record_from_json, record_to_json


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically: temporary name, fsync, rename."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically: temporary name, fsync, rename."""
    with explain_os_error(path), _part(path, data) as temporary:
        os.replace(temporary, path)
        _sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` atomically where nothing is yet; ``UserError`` when another file has that name.

    What is there already with the same content is left as it is.
    """
    with explain_os_error(path), _part(path, data) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # A network file system may have done it, lost its answer and done it again: then it has our content.
            if path.read_bytes() != data:
                raise UserError(f"There is another file {path}.", "Nothing was written.") from None
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            os.replace(temporary, path)
        _sync_folder(path.parent)


NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
"""What file systems without hard links say."""


@contextlib.contextmanager
def _part(path: Path, data: bytes) -> Iterator[str]:
    """A synced temporary file with ``data`` beside ``path``, gone when the block ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _sync_folder(folder: Path) -> None:
    """Make a new name outlive a power failure, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
    write_new(path, record_to_json(record).encode("utf-8"))
    return path


def read_records(folder: Path) -> tuple[list[Record], list[str]]:
    """All records in ``folder``, oldest first, and one sentence for each file that is not a whole record."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {folder}.",
            "Name the folder that 'genaccel quantize' or another run wrote its records to.",
        )
    return _read_files(sorted(folder.glob("*.json")))


def gather_records(places: Sequence[Path]) -> tuple[list[Record], list[str]]:
    """The records of several folders and files, each record once, oldest first, and sentences about what is none."""
    found: dict[str, Record] = {}
    problems: list[str] = []
    for place in places:
        records, wrong = _read_files([place]) if place.is_file() else read_records(place)
        found |= {r.id: r for r in records}
        problems += wrong
    return sorted(found.values(), key=lambda r: (r.created, r.id)), problems


def _read_files(paths: Sequence[Path]) -> tuple[list[Record], list[str]]:
    records, problems = [], []
    for path in paths:
        try:
            records.append(record_from_json(_read_text(path), str(path)))
        except UserError as error:
            problems.append(str(error))
        except (UnicodeDecodeError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            problems.append(f"The record {path} cannot be read: {reason}.")
    return sorted(records, key=lambda r: (r.created, r.id)), problems


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return path.read_text(encoding="utf-8")  # another machine touched the file: NFS finds it anew
