"""Units: what each means, and that qualifiers change a figure by exactly what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.quantities import Entry, Source, parse_unit, peak, plain

SOURCES = {"s": Source("a sheet", "2026")}
VALUES = st.floats(1e-3, 1e6)


@pytest.mark.parametrize(
    ("unit", "canonical", "factor"),
    [
        ("TFLOP/s", "FLOP/s", 1e12),
        ("PFLOP/s", "FLOP/s", 1e15),
        ("TOP/s", "OP/s", 1e12),
        ("GB", "B", 1e9),
        ("GiB", "B", 2**30),
        ("MiB", "B", 2**20),
        ("GB/s", "B/s", 1e9),
        ("GiB/s", "B/s", 2**30),
        ("Gb/s", "B/s", 1e9 / 8),
        ("Tb/s", "B/s", 1e12 / 8),
        ("W", "W", 1),
        ("kW", "W", 1e3),
        ("MHz", "Hz", 1e6),
        ("us", "s", 1e-6),
        ("SM", "units", 1),
        ("USD/h", "USD/h", 1),
    ],
)
def test_units(unit, canonical, factor):
    assert parse_unit(unit, "x") == (canonical, pytest.approx(factor))


@pytest.mark.parametrize("unit", ["GBps", "Gbps", "GB/sec", "TFLOPS", "TOPS"])
def test_units_that_can_be_read_in_two_ways(unit):
    with pytest.raises(UserError, match="two ways"):
        parse_unit(unit, "x")


@pytest.mark.parametrize("unit", ["", "furlong", "Gbit", "GT", "GT/s", "gb/s", "GB/S", "TFLOP"])
def test_units_that_are_none(unit):
    with pytest.raises(UserError, match="no unit that is known"):
        parse_unit(unit, "x")


def entry(value, **given):
    return Entry(**({"value": value, "kind": "spec", "source": "s", "per": "card"} | given))


@given(VALUES, st.sampled_from(["dense", "sparse"]), st.sampled_from(["card", "package"]), st.integers(2, 4))
def test_a_peak_by_its_qualifiers(value, density, per, dies):
    given = entry(value, unit="TFLOP/s", density=density, per=per)
    found = peak(given, "bf16", "x", SOURCES, devices_per_package=dies)
    expected = value * 1e12 / (2 if density == "sparse" else 1) / (dies if per == "package" else 1)
    assert found.value == pytest.approx(expected)
    assert found.kind == ("spec" if (density, per) == ("dense", "card") else "derived")


@given(VALUES, st.integers(500, 3000), st.integers(500, 3000))
def test_a_peak_at_another_clock_is_in_proportion(value, published, shipped):
    given = entry(value, unit="TOP/s", density="dense", clock_mhz=published)
    found = peak(given, "int8", "x", SOURCES, clock_hz=shipped * 1e6)
    assert found.value == pytest.approx(value * 1e12 * shipped / published)


@given(VALUES)
def test_bits_are_an_eighth_of_bytes(value):
    bits, whole = (plain(entry(value, unit=unit), "B/s", "x", SOURCES).value for unit in ("Gb/s", "GB/s"))
    assert 8 * bits == pytest.approx(whole)
