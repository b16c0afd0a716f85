"""The probe: rates by closed forms on a clock of its own, and a file that reads back as the numbers that were measured."""

from __future__ import annotations

import json

import pytest
import torch

from genaccel import devices
from genaccel.devices import cpu
from genaccel.errors import UserError
from genaccel.hardware import read_accelerator
from genaccel.link_probe import measure_links, why_not
from genaccel.measure import Samples
from genaccel.probe import (
    PRODUCTS,
    Found,
    Probed,
    array_size,
    last_cache_bytes,
    matmul_figures,
    memory_figures,
    slug,
    to_toml,
)
from genaccel.probe import probe as probe_device
from genaccel.probe_file import probe_to_file

BY_DTYPE = {p.dtype: p for p in PRODUCTS}
QUICK = 1e-3
"""Seconds after which products grow no further, for tests."""


def timed(monkeypatch, seconds_of):
    """Let every call that ``repeat`` times take ``seconds_of(function)`` on its clock."""

    def repeat(function, device, *, num_warmup=2, num_repeats=5):
        function()
        return Samples((seconds_of(function),) * num_repeats, num_warmup)

    monkeypatch.setattr("genaccel.probe.repeat", repeat)


def test_the_rate_of_a_product_by_hand(monkeypatch):
    """2 n^3 operations; sizes double until one takes long enough, and the last three are kept, the fastest first."""
    monkeypatch.setattr("genaccel.probe.LARGEST", 1024)
    timed(monkeypatch, lambda _: 0.5)
    found = matmul_figures(BY_DTYPE["fp32"], cpu, long_seconds=0.1)
    assert [(f.name, f.value) for f in found] == [("matmul_fp32_256", 2 * 256**3 / 0.5)]
    timed(monkeypatch, lambda _: 0.01)
    found = matmul_figures(BY_DTYPE["fp32"], cpu, long_seconds=0.1)
    assert [f.name for f in found] == ["matmul_fp32_1024", "matmul_fp32_512", "matmul_fp32_256"]
    assert found[0].value == 2 * 1024**3 / 0.01


def test_the_rate_of_memory_by_hand(monkeypatch):
    """A copy reads one array and writes one, the triad reads two and writes one."""
    timed(monkeypatch, lambda _: 0.25)
    copy, triad = memory_figures(cpu, 4_000_000)
    assert (copy.name, copy.value) == ("copy_memory", 2 * 4e6 / 0.25)
    assert (triad.name, triad.value) == ("triad_memory", 3 * 4e6 / 0.25)


@pytest.mark.parametrize("dtype", ["fp32", "fp64", "bf16", "fp16", "int8", "fp8"])
def test_what_is_timed_is_the_product(dtype):
    """Against the same product in float64."""
    torch.manual_seed(0)
    made = []
    real = {"randn": torch.randn, "randint": torch.randint}

    def keep(name):
        def call(*args, **kwargs):
            made.append(real[name](*args, **kwargs))
            return made[-1]

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "randn", keep("randn"))
        patch.setattr(torch, "randint", keep("randint"))
        multiply = BY_DTYPE[dtype].prepare(64, torch.device("cpu"))
    a, b = (m.to(torch.float8_e4m3fn) if dtype == "fp8" else m for m in made)
    expected, found = a.double() @ b.double(), multiply().double()
    tolerance = {"fp32": 1e-5, "fp64": 1e-13, "int8": 0.0}.get(dtype, 2e-2)
    assert (found - expected).abs().max() <= tolerance * expected.abs().max()


@pytest.mark.parametrize(
    ("cache", "memory", "expected"),
    [
        (None, None, 256_000_000),
        (32_000_000, 10**12, 256_000_000),
        (256_000_000, 10**12, 1_024_000_000),  # no cache holds an array
        (None, 2_400_000_000, 100_000_000),  # three arrays fit into an eighth of the memory
    ],
)
def test_arrays_are_larger_than_caches_and_fit(cache, memory, expected):
    assert array_size(cache, memory) == expected


def test_the_last_cache_as_linux_reports_it(tmp_path):
    for index, size in enumerate(["32K", "1024K", "33M", "none"]):
        (tmp_path / f"index{index}").mkdir()
        (tmp_path / f"index{index}" / "size").write_text(size + "\n")
    assert last_cache_bytes(tmp_path) == 33 * 2**20
    assert last_cache_bytes(tmp_path / "nowhere") is None


SAMPLES = Samples((0.9, 1.0, 1.0, 1.0, 1.1), 2)
PROBED = Probed(
    (
        Found("peak_flops.fp32", 1.234e11, "FLOP/s", SAMPLES, "torch.mm at 1024, the fastest size"),
        Found("peak_flops.int8", 5.5e10, "OP/s", SAMPLES, 'a "quoted" note\nof two lines'),
        Found("matmul_fp32_1024", 1.234e11, "FLOP/s", SAMPLES, "torch.mm"),
        Found("memory_bandwidth", 1.1e10, "B/s", SAMPLES, "triad"),
        Found("link", 8.7e8, "B/s", SAMPLES, "gloo, 2 processes"),
        Found("collective_latency", 1.2e-4, "s", SAMPLES, "gloo, 2 processes"),
    ),
    {"peak_flops.fp8": "torch cannot", "host_link": "not measured"},
)
ABOUT = {"description": "A machine, measured", "runtime": "cpu", "source": "genaccel probe: here"}


def test_what_is_written_reads_back_as_what_was_measured(tmp_path):
    path = tmp_path / "probed.toml"
    path.write_text(to_toml(PROBED, "probed-x", ABOUT, 16_000_000_000, "2026-12-02"))
    card = read_accelerator(path)
    assert card.peak_flops == pytest.approx({"fp32": 1.234e11, "int8": 5.5e10}, rel=1e-12)
    assert card.memory_bytes == 16_000_000_000
    assert card.memory_bytes_per_second == pytest.approx(1.1e10, rel=1e-12)
    assert card.link_bytes_per_second == pytest.approx(8.7e8, rel=1e-12)
    assert card.measured["collective_latency"] == pytest.approx(1.2e-4, rel=1e-12)
    assert {q.kind for q in card.figures.values()} == {"measured"}
    assert card.absent == PROBED.absent
    figure = card.figures["peak_flops.fp32"]
    assert figure.note == "torch.mm at 1024, the fastest size; median of 5, spread 0%"
    assert (figure.source, figure.date) == ("genaccel probe: here", "2026-12-02")


def test_a_kernel_that_torch_lacks_is_absent_with_what_it_said(monkeypatch):
    def broken(size, device):
        raise RuntimeError("not on this chip.\nand more")

    product = BY_DTYPE["fp8"]
    monkeypatch.setattr("genaccel.probe.PRODUCTS", (product.__class__("fp8", "FLOP/s", "torch.x", broken),))
    monkeypatch.setattr("genaccel.probe.ARRAY_BYTES", 1_000_000)
    found = probe_device(cpu, "one process has no links", QUICK)
    assert found.absent == {"peak_flops.fp8": "torch.x cannot: not on this chip", "link": "one process has no links"}


def test_links_need_two_processes_and_a_card_each():
    class Cards:
        def describe(self):
            return {"devices": "1"}

    assert why_not(cpu, 2) is None
    assert why_not(cpu, 1) == "one process has no links"
    assert why_not(Cards(), 2) == "2 processes need a card each, and there is one"


@pytest.mark.distributed
def test_links_between_two_processes():
    link, gather, latency = measure_links(cpu, 2, large_bytes=1_000_000)
    assert (link.name, gather.name, latency.name) == ("link", "all_gather_bus", "collective_latency")
    assert len(link.samples.values) == 5
    # Two processes send the whole tensor once: 2 (n - 1) / n of it.
    assert link.value == pytest.approx(1e6 / link.samples.median)
    assert gather.value == pytest.approx(1e6 / gather.samples.median)
    assert latency.value == latency.samples.median < link.samples.median + 1


def test_this_machine_from_beginning_to_end(tmp_path, monkeypatch):
    monkeypatch.setattr("genaccel.probe.ARRAY_BYTES", 4_000_000)
    monkeypatch.setattr("genaccel.probe.last_cache_bytes", lambda: None)
    path = tmp_path / "deep" / "probed.toml"
    found = probe_to_file(devices.get("cpu"), path, 1, "mine", QUICK)
    card = read_accelerator(path)
    assert (card.name, card.runtime) == ("mine", "cpu")
    best = max(f.value for f in found.figures if f.name.startswith("matmul_fp32"))
    assert card.peak_flops["fp32"] == pytest.approx(best)
    assert "link" in card.absent


def test_what_cannot_be_written_is_said_before_anything_is_measured(tmp_path):
    with pytest.raises(UserError, match="is no TOML file"):
        probe_to_file(cpu, tmp_path / "x.json", 1)


def test_probe_from_the_command_line(run, monkeypatch, tmp_path):
    monkeypatch.setattr("genaccel.probe.ARRAY_BYTES", 1_000_000)
    monkeypatch.setattr("genaccel.probe.last_cache_bytes", lambda: None)
    monkeypatch.setattr("genaccel.probe.PRODUCTS", (BY_DTYPE["fp32"],))
    code, out, err = run("probe", "--processes", "1", "--name", "mine", "--json")
    assert code == 0, err
    assert json.loads(out)["name"] == "mine"
    assert "Probing" in err
    assert read_accelerator(tmp_path / "probed.toml").name == "mine"
    code, _, err = run("probe", "--processes", "0")
    assert code == 2
    assert "--processes is 0" in err


def test_names_are_fit_for_files():
    assert slug("Intel(R) Xeon(R) CPU @ 2.20GHz") == "intel-r-xeon-r-cpu-2-20ghz"
