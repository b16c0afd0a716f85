"""What generations can do: the table agrees with makers' published peaks, and guesses name the usual mistakes."""

from __future__ import annotations

import pytest

from genaccel.architectures import ARCHITECTURES, DTYPES, LINKS, TOLERANCE, check_bandwidth, check_link, check_peaks
from genaccel.errors import UserError
from genaccel.hardware import accelerators


@pytest.mark.parametrize(
    ("name", "units", "mhz", "dtype", "tflops"),
    [
        # Units and clocks of makers' white papers, and the peaks printed there.
        ("volta", 80, 1530, "fp16", 125),
        ("volta", 80, 1380, "fp16", 112),  # the PCIe card
        ("ampere", 108, 1410, "bf16", 312),
        ("ampere", 108, 1410, "int8", 624),
        ("hopper", 132, 1830, "fp8", 1979),
        ("hopper", 114, 1620, "bf16", 756),
        ("ada", 142, 2490, "fp16", 362),
        ("cdna2", 220, 1700, "bf16", 383),
        ("cdna3", 304, 2100, "fp8", 2614.9),
        ("gaudi2", 2, 1650, "bf16", 432),
        ("gaudi3", 8, 1750, "bf16", 1835),
        ("gaudi3", 8, 1750, "fp32", 229),
        ("tpu-v5e", 4, 1500, "bf16", 197),
        ("tpu-v5p", 8, 1750, "bf16", 459),
    ],
)
def test_units_times_clock_times_width_is_the_published_peak(name, units, mhz, dtype, tflops):
    peak = units * mhz * 1e6 * ARCHITECTURES[name].matrix_flops[dtype]
    assert peak == pytest.approx(tflops * 1e12, rel=TOLERANCE)
    check_peaks(ARCHITECTURES[name], {dtype: tflops * 1e12}, units, mhz * 1e6, 1.0, "x")


def test_every_dtype_is_known_and_every_generation_but_the_hosts_has_a_card():
    for name, chip in ARCHITECTURES.items():
        assert set(chip.matrix_flops) | chip.others <= set(DTYPES), name
        assert not set(chip.matrix_flops) & chip.others, name
    assert {card.architecture for card in accelerators().values()} - {None} == set(ARCHITECTURES)


@pytest.mark.parametrize("technology", LINKS)
@pytest.mark.parametrize(
    ("factor", "guess"),
    [(2, "Both directions together"), (8, "Bits entered as bytes"), (1 / 8, "Bytes entered as bits")],
)
def test_a_link_off_by_a_usual_factor_is_told_so(technology, factor, guess):
    link = LINKS[technology]
    check_link(technology, link.bytes_per_second, 1, "x")
    with pytest.raises(UserError, match=guess):
        check_link(technology, factor * link.bytes_per_second, 1, "x")


def test_bandwidth_of_half_a_package():
    check_bandwidth(ARCHITECTURES["cdna2"], 1.64e12, 0.5, "x")
    with pytest.raises(UserError, match="a whole package's"):
        check_bandwidth(ARCHITECTURES["cdna2"], 3.28e12, 0.5, "x")
    check_bandwidth(None, 1.0, 1.0, "x")
