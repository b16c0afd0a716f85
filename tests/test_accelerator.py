"""Accelerators: what is wrong in public catalogues is refused with its reason, and what is right converts."""

from __future__ import annotations

from importlib import resources

import pytest

from genaccel.errors import UserError
from genaccel.hardware import accelerators, read_accelerator


def text_of(name):
    return resources.files("genaccel").joinpath(f"catalogue/accelerators/{name}.toml").read_text()


def read(tmp_path, text):
    (tmp_path / "x.toml").write_text(text)
    return read_accelerator(tmp_path / "x.toml")


def changed(name, old, new):
    text = text_of(name)
    assert old in text, f"the catalogue's {name} has changed"
    return text.replace(old, new, 1)


BF16 = 'bf16 = { value = 989, unit = "TFLOP/s", density = "dense"'
GCD = 'bf16 = { value = 383, unit = "TFLOP/s", density = "dense", per = "package"'
NVLINK = 'link = { value = 300, unit = "GB/s", technology = "nvlink3", direction = "one", per = "card"'


@pytest.mark.parametrize(
    ("card", "old", "new", "reason"),
    [
        # What public catalogues have, each with its place there or its kind.
        ("v100-16gb", "memory = { value = 16,", "memory = { value = 32,", "says 16 GB, but its memory is 32 GB"),
        ("v100", "fp16 = { value = 125,", "fp16 = { value = 112,", "not what 80 units at 1530 MHz do"),
        ("gh200", BF16, BF16.replace("989", "1979"), "A sparse figure entered as dense?"),
        ("gaudi3", "bf16 = { value = 1677,", "bf16 = { value = 1835,", "not what 8 units at 1600 MHz do"),
        ("gaudi3", "fp8 = { value = 1677,", "fp8 = { value = 1835,", "not what 8 units at 1600 MHz do"),
        ("a100", "fp8 = { absent", 'fp8 = { value = 624, unit = "TFLOP/s", note', "ampere chips do not compute in fp8"),
        ("v100", "bf16 = { absent", 'bf16 = { value = 125, unit = "TFLOP/s", note', "do not compute in bf16"),
        ("h100", "int4 = { absent", 'int4 = { value = 3958, unit = "TOP/s", note', "do not compute in int4"),
        ("h100", "fp8 = { value = 1979,", "fp8 = { value = 3958,", "A sparse figure entered as dense?"),
        ("b200", "fp8 = { value = 4500,", "fp8 = { value = 9000,", "4 times as fast as bf16, but 2 times"),
        # A measured rate entered as a specification, and one that is beyond it.
        ("h100", BF16, BF16.replace("989", "794.5"), "not what 132 units at 1830 MHz do"),
        (
            "h100",
            "best_matmul_bf16 = { value = 794.5",
            "best_matmul_bf16 = { value = 1029",
            "104% of what the card can do",
        ),
        (
            "h100",
            "thin_matmul_weights = { value = 2833",
            "thin_matmul_weights = { value = 3400",
            "101% of what the card",
        ),
        ("a100", NVLINK, NVLINK.replace("300", "600"), "Both directions together?"),
        ("gaudi2", "link = { value = 262.5,", "link = { value = 2100,", "Bits entered as bytes?"),
        ("gaudi2", 'value = 262.5, unit = "GB/s"', 'value = 262.5, unit = "Gb/s"', "Bytes entered as bits?"),
        ("h100", 'value = 3350, unit = "GB/s"', 'value = 3350, unit = "Gb/s"', "Bytes entered as bits?"),
        ("h100", 'value = 3350, unit = "GB/s"', 'value = 26800, unit = "GB/s"', "Bits entered as bytes"),
        ("a100", "links_per_card = 12", "links_per_card = 24", "at most 12 links of nvlink3"),
        ("mi250x-gcd", GCD, GCD.replace("package", "card"), "whole package"),
        # What lacks a qualifier, or has a wrong one.
        (
            "h100",
            BF16,
            BF16.replace(', density = "dense"', ""),
            "it has no density: a sparse peak is twice the dense one",
        ),
        ("v100", 'density = "dense"', 'density = "sparse"', "volta chips have no sparse arithmetic"),
        ("a100", NVLINK, NVLINK.replace(', direction = "one"', ""), "no direction: both directions of a link"),
        ("a100", NVLINK, NVLINK.replace(', per = "card"', ""), "no per: a card, a package, a link and a node differ"),
        ("a100", NVLINK, NVLINK.replace(', technology = "nvlink3"', ""), "no technology"),
        ("a100", NVLINK, NVLINK.replace("nvlink3", "nvlink9"), "there is no technology 'nvlink9'"),
        ("a100", "links_per_card = 12, ", "", "does not say how many links there are"),
        ("a100", NVLINK, NVLINK.replace('"card"', '"node"'), "says nothing about a card's links"),
        ("a100", 'memory = { value = 80, unit = "GB"', "memory = { value = 80", "no unit: bits and bytes differ by 8"),
        ("a100", 'unit = "GB/s"', 'unit = "GBps"', "can be read in two ways"),
        ("a100", 'unit = "TFLOP/s"', 'unit = "TFLOPS"', "can be read in two ways"),
        ("a100", 'unit = "GB/s"', 'unit = "GB"', "no rate"),
        ("a100", 'unit = "TOP/s"', 'unit = "TFLOP/s"', "no integer arithmetic"),
        ("a100", 'unit = "W"', 'unit = "horses"', "no unit that is known"),
        ("a100", ', kind = "spec"', "", "no kind: spec, measured or derived"),
        ("a100", ', source = "ml-eng-compute"', "", "no source: a number without a source is a guess"),
        (
            "a100",
            'source = "ml-eng-compute"',
            'source = "ml-eng-comptue"',
            "there is no source 'ml-eng-comptue'. .Did you mean ml-eng-comp",
        ),
        ("a100", 'kind = "measured"', 'kind = "spec"', "Figures under 'measured' were measured"),
        ("a100", "tdp = { value = 400", "tdp = { value = 0", "never 0"),
        (
            "a100",
            "tdp = { value = 400,",
            'tdp = { value = 400, absent = "why",',
            "has a value and says that it is absent",
        ),
        ("a100", 'per = "card"', 'per = "node"', "is per node, but it is a figure of a card"),
        ("a100", "\nfp16 = {", "\nfp17 = {", "there is no dtype 'fp17'"),
        ("a100", 'architecture = "ampere"', 'architecture = "amper"', "Did you mean ampere"),
        ("h100-nvl", "fp16 = { value = 835.5,", "clock_mhz = 1,\nfp16 = {", "is no TOML"),
        ("h100-nvl", "bf16 = { value = 835.5,", "bf16 = { value = 835.5, clock_mhz = 1755,", "clock is not given"),
    ],
)
def test_a_wrong_figure_is_refused_with_its_reason(tmp_path, card, old, new, reason):
    with pytest.raises(UserError, match=reason) as caught:
        read(tmp_path, changed(card, old, new))
    assert "x.toml" in caught.value.message


@pytest.mark.parametrize(
    ("card", "old", "new"),
    [
        # As vendors print them: twice the rate in both directions, in bits, for each link, with sparsity, for two dies.
        ("a100", NVLINK, NVLINK.replace("300", "600").replace('"one"', '"both"')),
        ("a100", NVLINK, NVLINK.replace("300", "2400").replace("GB/s", "Gb/s")),
        ("a100", NVLINK, NVLINK.replace("300", "25").replace('"card"', '"link"')),
        ("h100", BF16, BF16.replace("989", "1978").replace("dense", "sparse")),
        ("gaudi3", "bf16 = { value = 1677,", "bf16 = { value = 1834.21875, clock_mhz = 1750,"),
        ("a100", 'memory = { value = 80, unit = "GB"', 'memory = { value = 80_000, unit = "MB"'),
        ("h100", 'value = 3350, unit = "GB/s"', 'value = 3.35, unit = "TB/s"'),
        ("v100-16gb", 'memory = { value = 16, unit = "GB"', 'memory = { value = 14.901161193847656, unit = "GiB"'),
    ],
)
def test_a_figure_in_another_form_is_the_same(tmp_path, card, old, new):
    other, known = read(tmp_path, changed(card, old, new)), accelerators()[card]
    for name in known.figures:
        assert other.figures[name].value == pytest.approx(known.figures[name].value, rel=1e-12), name
    assert other.memory_bytes == known.memory_bytes


def test_a_converted_figure_is_derived_and_says_what_was_printed(tmp_path):
    card = read(tmp_path, changed("h100", BF16, BF16.replace("989", "1978").replace("dense", "sparse")))
    figure = card.figures["peak_flops.bf16"]
    assert (figure.kind, figure.unit, figure.entered) == ("derived", "FLOP/s", "1978 TFLOP/s, sparse, per card")
    plain = accelerators()["h100"].figures["peak_flops.bf16"]
    assert (plain.kind, plain.date) == ("spec", "2026-08-22")
    assert plain.source.startswith("stas00/ml-engineering")


def test_a_measured_peak_need_not_be_what_units_and_clock_give(tmp_path):
    spec = 'bf16 = { value = 989, unit = "TFLOP/s", density = "dense", per = "card", kind = "spec"'
    measured = spec.replace("989", "700").replace('"spec"', '"measured"')
    assert read(tmp_path, changed("h100", spec, measured)).peak_flops["bf16"] == 7e14


def test_a_die_is_half_a_card():
    card, die = accelerators()["mi250x"], accelerators()["mi250x-gcd"]
    assert die.memory_bytes * 2 == card.memory_bytes == 128_000_000_000
    assert {d: 2 * v for d, v in die.peak_flops.items()} == card.peak_flops
    assert die.figures["memory"].kind == "derived"


def test_gaudi3_at_the_clock_that_it_ships_with():
    """The white paper's other figures are at 1,750 MHz: eight units, a quarter of the multipliers in fp16."""
    card = accelerators()["gaudi3"]
    assert card.peak_flops["fp16"] == pytest.approx(8 * 1.6e9 * 256**2 / 2, rel=2e-3)
    assert card.peak_flops["bf16"] == pytest.approx(8 * 1.6e9 * 256**2 * 2, rel=2e-3)


@pytest.mark.parametrize(
    ("card", "dtype", "tflops"),
    [
        # Makers' data sheets, dense.
        ("v100", "fp16", 125),
        ("a100", "bf16", 312),
        ("a100-40gb", "int8", 624),
        ("h100", "bf16", 989),
        ("h100", "fp8", 1979),
        ("h100-pcie", "bf16", 756),
        ("gh200", "bf16", 989),
        ("h200", "tf32", 494.5),
        ("b200", "fp4", 9000),
        ("l40s", "fp16", 362),
        ("mi300x", "bf16", 1307),
        ("gaudi2", "bf16", 432),
        ("gaudi2", "fp8", 865),
        ("tpu-v5e", "int8", 394),
        ("tpu-v5p", "bf16", 459),
    ],
)
def test_peaks_of_data_sheets(card, dtype, tflops):
    assert accelerators()[card].peak_flops[dtype] == tflops * 1e12


def test_a_gap_is_absent_with_its_reason():
    card = accelerators()["gaudi1"]
    assert card.peak_flops == {}
    assert "published no peak" in card.absent["peak_flops.bf16"]
    assert "fp8" not in accelerators()["a100"].peak_flops


def test_every_number_has_its_provenance():
    for card in accelerators().values():
        for name, figure in card.figures.items():
            assert figure.value > 0, (card.name, name)
            assert len(figure.source) > 8, (card.name, name)
            assert figure.date[:2] == "20", (card.name, name)
            assert (figure.kind == "measured") == name.startswith("measured."), (card.name, name)
        for dtype, value in card.peak_flops.items():
            assert card.figures[f"peak_flops.{dtype}"].value == value
        # What was reached stays below what is possible.
        for title, value in card.measured.items():
            dtype = title.rpartition("_")[2]
            if title.startswith("best_matmul"):
                assert value < card.peak_flops[dtype]
            if title == "thin_matmul_weights":
                assert value < card.memory_bytes_per_second
