"""Records: strict JSON both ways, and what they say about the machine."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel import records
from genaccel.errors import UserError
from genaccel.records import Environment, Figure, Record, Setting, record_from_json, record_to_json

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
FIGURES = st.builds(
    Figure,
    name=st.text(),
    value=st.none() | NUMBERS,
    unit=st.text(),
    kind=st.sampled_from(["measured", "predicted", "published"]),
    protocol=st.text(),
    samples=st.lists(NUMBERS, max_size=3).map(tuple),
    spread=st.none() | NUMBERS,
    stderr=st.none() | NUMBERS,
    interval=st.none() | st.tuples(NUMBERS, NUMBERS),
)
ENVIRONMENTS = st.builds(Environment, num_threads=st.none() | st.integers(1, 999))
SETTINGS = st.builds(Setting, PLAIN, st.sampled_from(["flag", "file", "environment", "default", "program"]))
RECORDS = st.builds(
    Record,
    config=st.dictionaries(st.text(), SETTINGS, max_size=3),
    environment=ENVIRONMENTS,
    figures=st.lists(FIGURES, max_size=3).map(tuple),
    details=st.dictionaries(st.text(), PLAIN, max_size=3),
    warnings=st.lists(st.text(), max_size=2).map(tuple),
)

EXAMPLE = Record(
    "quantize",
    "label",
    "model",
    "real",
    "cpu",
    {"seed": Setting(1, "flag")},
    Environment("cpu", "chip", 1, 2, "chip x 2", "3.11", "linux", {"torch": "2"}, "abc"),
    (Figure("perplexity", 1.5, "1", "measured", "protocol", (1.0, 2.0), interval=(1.0, 2.0)),),
    {"kernels": {}},
)


@given(RECORDS)
def test_a_record_survives_its_json(record):
    text = record_to_json(record)
    assert record_from_json(text, "here") == record
    assert record_to_json(record_from_json(text, "here")) == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def test_whole_numbers_are_numbers():
    found = record_from_json(record_to_json(EXAMPLE).replace('"value": 1.5', '"value": 2'), "here")
    assert found.figure("perplexity").value == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "place",
    [
        lambda bad: {"figures": (replace(EXAMPLE.figures[0], value=bad),)},
        lambda bad: {"figures": (replace(EXAMPLE.figures[0], samples=(1.0, bad)),)},
        lambda bad: {"details": {"deep": [{"er": bad}]}},
    ],
)
def test_what_is_no_number_is_never_written(bad, place):
    with pytest.raises(ValueError, match="JSON compliant"):
        record_to_json(replace(EXAMPLE, **place(bad)))


def changed(path: str, value: object) -> str:
    """The example's JSON with the entry at ``path`` replaced, or removed when ``value`` is ``...``."""
    data = json.loads(record_to_json(EXAMPLE))
    *parents, last = path.split("/")
    place = data
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("label", ..., "'label' is missing"),
        ("environment/host_cpu", ..., "'host_cpu' is missing"),
        ("figures/0/unit", ..., "'unit' is missing"),
        ("lable", "x", "unknown key 'lable' (Did you mean label"),
        ("figures/0/valeu", 1.0, "unknown key 'valeu' (Did you mean value"),
        ("environment/gpu", "x", "unknown key 'gpu'"),
        ("config/seed/from", "x", "unknown key 'from'"),
        ("label", 3, "label: 3 is not str"),
        ("label", None, "label: None is not str"),
        ("figures/0/value", "1.5", "'1.5'"),
        ("figures/0/value", True, "True"),
        ("figures/0/samples", [1.0, "2"], "'2' is not float"),
        ("figures/0/samples", 2.0, "samples: 2.0 is not a list"),
        ("figures/0/samples", "", "samples: '' is not a list"),
        ("figures/0/interval", [1.0], "[1.0] has 1 entries, not 2"),
        ("figures/0/interval", [1.0, 2.0, 3.0], "entries, not 2"),
        ("figures/0/kind", "guessed", "guessed"),
        ("figures", {}, "figures: {} is not a list"),
        ("warnings", "quiet", "warnings: 'quiet' is not a list"),
        ("artefacts", ["a"], "artefacts"),
        ("environment", "here", "environment"),
        ("environment/num_devices", 1.0, "1.0 is not int"),
        ("environment/packages", {"torch": 2}, "2 is not str"),
        ("config/seed/origin", "nowhere", "nowhere"),
        ("schema_version", ..., "schema version None"),
        ("schema_version", 3, "schema version 3, this genaccel reads 1 to 2"),
        ("schema_version", True, "schema version True"),
        ("schema_version", 0, "schema version 0"),
        ("schema_version", "2", "schema version 2, this"),
        ("data", {"text": 3}, "3 is not str"),
    ],
)
def test_anything_that_a_record_is_not_is_refused(path, value, sentence):
    with pytest.raises(UserError) as caught:
        record_from_json(changed(path, value), "here.json")
    assert sentence in caught.value.message
    assert "here.json" in caught.value.message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "torn or not JSON"),
        (record_to_json(EXAMPLE)[:-3], "torn or not JSON"),
        ("[]", "schema version None"),
        ("3", "schema version None"),
        (record_to_json(EXAMPLE).replace('"value": 1.5', '"value": NaN'), "NaN is no JSON number"),
        (record_to_json(EXAMPLE).replace('"value": 1.5', '"value": -Infinity'), "-Infinity is no JSON number"),
        (record_to_json(EXAMPLE).replace('"value": 1.5', '"value": 1e999'), "inf is not finite"),
    ],
)
def test_what_is_no_record_is_refused(text, sentence):
    with pytest.raises(UserError) as caught:
        record_from_json(text, "here.json")
    assert sentence in caught.value.message


OLD_DETAILS = [
    ({}, {}),
    ({"text": {"name": "wikitext2", "sha256": "aa"}}, {"wikitext2": "aa"}),
    ({"data": {"name": "alpaca.json", "sha256": "bb", "length": 512}}, {"alpaca.json": "bb"}),
    (
        {"text": {"sha256": "aa"}, "tasks": {"boolq": {"sha256": "cc", "train_sha256": "dd"}, "odd": 3}},
        {"text": "aa", "boolq": "cc", "boolq, examples": "dd"},
    ),
    ({"text": "torn", "tasks": ["boolq"], "data": {"sha256": 5}}, {}),
]


@pytest.mark.parametrize(("details", "data"), OLD_DETAILS)
def test_a_record_of_version_1_is_brought_up_to_date(details, data):
    old = json.loads(record_to_json(replace(EXAMPLE, details=details)))
    del old["data"]
    found = record_from_json(json.dumps(old | {"schema_version": 1}), "here")
    assert found == replace(EXAMPLE, details=details, data=data)
    assert found.schema_version == 2


def test_a_newer_record_is_refused_with_what_to_do():
    with pytest.raises(UserError) as caught:
        record_from_json(changed("schema_version", 3), "here.json")
    assert caught.value.hint == "A newer genaccel wrote it: update this one."


def test_figures_are_found_by_name():
    assert EXAMPLE.figure("perplexity") is EXAMPLE.figures[0]
    assert EXAMPLE.figure("nothing") is None


def test_ids_and_times_differ_from_run_to_run():
    fields = {k: v for k, v in vars(EXAMPLE).items() if k not in ("id", "created")}
    made = [Record(**fields) for _ in range(50)]
    assert len({r.id for r in made}) == 50
    assert all(r.created.endswith("+00:00") for r in made)


# --- Settings ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    folder: Path = Path("a/b")
    tasks: tuple[object, ...] = ("x", Path("y"), ("z",))
    limit: int | None = None


def test_settings_read_back_as_they_were_stored():
    settings = records.settings_of(Config())
    assert {name: s.value for name, s in settings.items()} == {
        "folder": str(Path("a/b")),
        "tasks": ["x", "y", ["z"]],
        "limit": None,
    }
    record = replace(EXAMPLE, config=settings)
    assert record_from_json(record_to_json(record), "here").config == settings


# --- The machine ------------------------------------------------------------------------------------------------------


def test_versions_are_those_installed_and_absent_packages_are_left_out():
    import torch

    found = records.package_versions(("torch", "no-such-package"))
    assert found == {"torch": torch.__version__}


def test_the_host_is_described_by_what_linux_says():
    cpu, python, _ = records.describe_host()
    assert cpu.endswith(f" x {os.cpu_count()}")
    assert python == ".".join(map(str, sys.version_info[:3]))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A git checkout with one commit of a package, as which ``records`` poses."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "records.py").write_text("")
    monkeypatch.setattr(records, "__file__", str(package / "records.py"))

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    return package, git


def test_the_commit_is_the_checkouts_and_says_when_it_has_changes(checkout):
    package, git = checkout
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    commit = git("rev-parse", "HEAD")[:12]
    assert records.git_commit() == commit
    (package / "records.py").write_text("changed")
    assert records.git_commit() == commit + "+"


def test_the_commit_of_some_other_project_is_not_claimed(checkout):
    package, git = checkout
    (package.parent / "theirs").write_text("")
    git("add", "theirs")
    git("commit", "--quiet", "-m", "theirs")
    assert records.git_commit() == ""


def test_without_git_there_is_no_commit(monkeypatch):
    def no_git(*_, **__):
        raise FileNotFoundError("git")

    monkeypatch.setattr(records.subprocess, "run", no_git)
    assert records.git_commit() == ""
