"""The record that every run leaves: what ran, on what, by which protocol, the samples and the figures.

Strict JSON: unknown keys, missing keys and NaN are errors, and the schema version is checked first. Records of older
versions are brought up to date as they are read; those of newer ones are refused by name.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

from genaccel.errors import UserError, did_you_mean

RECORD_SCHEMA = 2

Origin = Literal["flag", "file", "environment", "default", "program"]
Kind = Literal["measured", "predicted", "published"]


@dataclass(frozen=True)
class Setting:
    """A resolved configuration value and where it came from."""

    value: Any
    origin: Origin


def settings_of(*configs: Any) -> dict[str, Setting]:
    """The values of configuration dataclasses as a program set them."""
    values = {name: value for config in configs for name, value in vars(config).items()}
    return {name: Setting(stored(v), "program") for name, v in values.items()}


def stored(value: Any) -> Any:
    """A configuration value as it reads back from a record: text for a path, a list for a tuple."""
    if isinstance(value, tuple):
        return [stored(v) for v in value]
    return str(value) if isinstance(value, Path) else value


@dataclass(frozen=True)
class Figure:
    """One number that a user may see. ``value`` is None when it is unknown, never 0.

    ``samples`` are the repeats behind a median, ``spread`` their interquartile range as a share of the median.
    ``stderr`` and ``interval`` (95 %) say how far the figure may be off for want of examples.
    """

    name: str
    value: float | None
    unit: str
    kind: Kind
    protocol: str
    samples: tuple[float, ...] = ()
    spread: float | None = None
    note: str = ""
    stderr: float | None = None
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Environment:
    """Where a run happened: machine, device, software. Values that could not be read are empty, never guessed."""

    device: str
    accelerator: str
    num_devices: int
    num_threads: int | None
    host_cpu: str
    python: str
    platform: str
    packages: dict[str, str]
    git_commit: str


@dataclass(frozen=True)
class Record:
    """One run. ``details`` holds job-specific structure: sensitivity scores, the plan, kernels, checks.

    ``data`` is the sha256 of every data set that the figures depend on, by its name: unlike data are not compared.
    """

    job: str
    label: str
    model: str
    mode: str
    target: str
    config: dict[str, Setting]
    environment: Environment
    figures: tuple[Figure, ...]
    details: dict[str, Any] = field(default_factory=dict)
    artefacts: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    data: dict[str, str] = field(default_factory=dict)
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    schema_version: int = RECORD_SCHEMA

    def figure(self, name: str) -> Figure | None:
        """The first figure called ``name``, or None."""
        return next((f for f in self.figures if f.name == name), None)


def record_to_json(record: Record) -> str:
    """Strict JSON of a record; a NaN or infinity among its figures raises ``ValueError``."""
    return json.dumps(asdict(record), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def record_from_json(text: str, source: str) -> Record:
    """The record in ``text``; ``UserError`` names ``source`` and says what is wrong."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise UserError(
            f"The record {source} is torn or not JSON: {error}.", "It is left out; the others are used."
        ) from None
    version = data.get("schema_version") if isinstance(data, dict) else None
    if isinstance(version, bool) or version not in (*MIGRATIONS, RECORD_SCHEMA):
        newer = isinstance(version, int) and version > RECORD_SCHEMA
        raise UserError(
            f"The record {source} has schema version {version}, this genaccel reads 1 to {RECORD_SCHEMA}.",
            "A newer genaccel wrote it: update this one." if newer else "",
        )
    for step in range(version, RECORD_SCHEMA):
        data = MIGRATIONS[step](data) | {"schema_version": step + 1}
    return structure_strictly(Record, data, f"The record {source}")


def data_hashes(details: Mapping[str, Any]) -> dict[str, str]:
    """sha256 by name of the data sets that a record's ``details`` tell of: texts, tasks, training data."""
    tasks = details.get("tasks")
    named = [
        (str(part.get("name", key)), part) for key in ("text", "data") if isinstance(part := details.get(key), dict)
    ]
    named += [(name, task) for name, task in tasks.items() if isinstance(task, dict)] if isinstance(tasks, dict) else []
    found = {}
    for name, part in named:
        for key, suffix in (("sha256", ""), ("train_sha256", ", examples")):
            if isinstance(sha256 := part.get(key), str) and sha256:
                found[name + suffix] = sha256
    return found


def _from_1(data: dict[str, Any]) -> dict[str, Any]:
    """Version 1 said what data it had read in its details alone."""
    details = data.get("details")
    return data | {"data": data_hashes(details) if isinstance(details, dict) else {}}


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _from_1}
"""From each older version of the schema to the next."""


def _refuse_constant(name: str) -> None:
    """Python's JSON reader takes NaN and Infinity, which no JSON has."""
    raise ValueError(f"{name} is no JSON number")


T = TypeVar("T")


def structure_strictly(cls: type[T], data: dict[str, Any], what: str) -> T:
    """Mapping -> dataclass, with ``UserError`` for an unknown key (did you mean), a missing one or a wrong type."""
    import cattrs

    try:
        return cast(T, _converter(False).structure(data, cls))
    except Exception:
        pass  # once more, slowly, to be told where
    try:
        return cast(T, _converter(True).structure(data, cls))
    except cattrs.BaseValidationError as error:
        raise UserError(f"{what} is not valid: {_first_problem(error, cls)}.", "") from None


@cache
def _converter(explains: bool) -> Any:
    """A strict converter; one that ``explains`` says in which field a mistake is, and is slower."""
    import cattrs

    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=explains)
    # Without these, cattrs would quietly turn "1" into 1 and 1 into "1": a wrong type in a file is an error.
    converter.register_structure_hook(str, _exactly(str))
    converter.register_structure_hook(int, _exactly(int))
    converter.register_structure_hook(float, _exactly(float, int))
    converter.register_structure_hook(bool, _boolean)
    converter.register_structure_hook_func(_is_tuple, partial(_tuple, converter))
    return converter


def _exactly(*types: type) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, types):
            raise TypeError(f"{value!r} is not {types[0].__name__}")
        if isinstance(value, float) and not math.isfinite(value):  # 1e999 is JSON, and infinite in Python
            raise TypeError(f"{value!r} is not finite")
        return value

    return check


def _boolean(value: Any, _: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _tuple(converter: Any, value: Any, kind: Any) -> tuple[Any, ...]:
    """A list as a tuple; cattrs would also take the letters of a text and the keys of a table."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    kinds = get_args(kind)
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(value)
    if len(kinds) != len(value):
        raise TypeError(f"{value!r} has {len(value)} entries, not {len(kinds)}")
    return tuple(converter.structure(v, k) for v, k in zip(value, kinds, strict=True))


def _first_problem(error: BaseException, cls: Any) -> str:
    """The innermost cause in cattrs' tree of errors, as a phrase."""
    import cattrs

    if isinstance(error, cattrs.ForbiddenExtraKeysError):
        name = sorted(error.extra_fields)[0]
        known = [f.name for f in fields(error.cl)] if is_dataclass(error.cl) else []
        return f"unknown key '{name}' ({did_you_mean(name, known).rstrip('.')})"
    if isinstance(error, cattrs.BaseValidationError):
        # A misspelled key is also a missing one: name the misspelling.
        first = min(error.exceptions, key=lambda e: not isinstance(e, cattrs.ForbiddenExtraKeysError))
        where = " ".join(str(getattr(note, "name", note)) for note in getattr(first, "__notes__", [])[:1])
        inner = _first_problem(first, cls)
        return f"{where}: {inner}" if where and ":" not in inner else inner
    if isinstance(error, KeyError):
        return f"key {error.args[0]!r} is missing"
    return str(error)


def describe_host() -> tuple[str, str, str]:
    """(CPU model, python version, platform) of this machine."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = lines[0].split(":", 1)[1].strip() if lines else cpu
    return f"{cpu} x {os.cpu_count()}", platform.python_version(), platform.platform()


def package_versions(names: tuple[str, ...]) -> dict[str, str]:
    """Installed versions of ``names``; those that are absent are left out."""
    from importlib import metadata

    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git_commit() -> str:
    """Commit of the checkout that this package is imported from ('+' when it has changes), or ''."""
    here = Path(__file__).parent
    try:
        run = [
            subprocess.run(
                ["git", "-C", str(here), *args], capture_output=True, text=True, timeout=5, check=True
            ).stdout
            for args in (
                ["rev-parse", "--short=12", "HEAD"],
                ["status", "--porcelain", "-uno"],
                ["ls-files", "__init__.py"],
            )
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    # A package installed into some other project's checkout must not claim that project's commit.
    return run[0].strip() + ("+" if run[1].strip() else "") if run[2].strip() else ""
