"""What generations of chips and links can do: the bounds that a catalogue's figures must respect.

A peak is units x clock x what a unit does in a clock, so that a sparse figure, another card's, or one at a clock that
was never shipped does not pass; a dtype that the chip lacks is refused; a link's rate follows from its generation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from genaccel.errors import UserError, did_you_mean

DTYPES = ("fp64", "fp64_matrix", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "int4", "fp4")
TOLERANCE = 0.02
"""Vendors round their peaks."""


@dataclass(frozen=True)
class Architecture:
    """A generation. ``matrix_flops``: dense FLOP (or integer operations) of one matrix unit in one clock, by dtype.

    A unit is an SM of NVIDIA, a CU of AMD, an MME of Gaudi. ``others`` are dtypes that it computes elsewhere.
    ``most_flops`` is the highest dense 16-bit peak, ``most_bytes_per_second`` the highest bandwidth of the memory, of any
    package of this generation.
    """

    matrix_flops: Mapping[str, int]
    others: frozenset[str]
    most_flops: float | None
    most_bytes_per_second: float
    sparsity: bool = False


def _chip(tflops: float | None, gigabytes: float, others: str, sparsity: bool = False, **flops: int) -> Architecture:
    return Architecture(flops, frozenset(others.split()), tflops and tflops * 1e12, gigabytes * 1e9, sparsity)


SQUARE = 256**2  # multipliers of an MME
ARCHITECTURES = {
    "volta": _chip(130, 1134, "fp64 fp32 int8", fp16=1024),
    "ampere": _chip(
        312, 2039, "fp64 fp32", True, fp64_matrix=128, tf32=1024, bf16=2048, fp16=2048, int8=4096, int4=8192
    ),
    # FP64 runs at a higher clock than the narrower types.
    "hopper": _chip(990, 4900, "fp64 fp64_matrix fp32", True, tf32=2048, bf16=4096, fp16=4096, fp8=8192, int8=8192),
    "ada": _chip(367, 1008, "fp64 fp32", True, tf32=512, bf16=1024, fp16=1024, fp8=2048, int8=2048, int4=4096),
    "blackwell": _chip(
        2500, 8000, "fp64 fp64_matrix fp32", True, tf32=4096, bf16=8192, fp16=8192, fp8=16384, int8=16384, fp4=32768
    ),
    "cdna2": _chip(383, 3280, "fp64 fp64_matrix fp32", bf16=1024, fp16=1024, int8=1024),
    "cdna3": _chip(1308, 6000, "fp64 fp64_matrix fp32", True, tf32=1024, bf16=2048, fp16=2048, fp8=4096, int8=4096),
    "gaudi1": _chip(None, 1000, "fp32 bf16 int8"),
    "gaudi2": _chip(433, 2460, "fp32 tf32 fp16 int8", bf16=2 * SQUARE, fp8=4 * SQUARE),
    "gaudi3": _chip(
        1836, 3700, "int8", fp32=SQUARE // 4, tf32=SQUARE // 2, fp16=SQUARE // 2, bf16=2 * SQUARE, fp8=2 * SQUARE
    ),
    "tpu-v4": _chip(276, 1230, "", bf16=2 * 128**2, int8=2 * 128**2),
    "tpu-v5e": _chip(198, 860, "", bf16=2 * 128**2, int8=4 * 128**2),
    "tpu-v5p": _chip(460, 2770, "", bf16=2 * 128**2, int8=4 * 128**2),
    "zen3": _chip(None, 205, "fp64 fp32 int8"),
}


@dataclass(frozen=True)
class LinkGeneration:
    """Bytes per second of one link in one direction, and how many links a card has at most."""

    bytes_per_second: float
    most_per_card: int


LINKS = {
    "nvlink2": LinkGeneration(25e9, 6),
    "nvlink3": LinkGeneration(25e9, 12),
    "nvlink4": LinkGeneration(25e9, 18),
    "nvlink5": LinkGeneration(50e9, 18),
    "xgmi2": LinkGeneration(50e9, 8),
    "xgmi3": LinkGeneration(64e9, 7),
    "pcie3-x16": LinkGeneration(15.75e9, 1),
    "pcie4-x16": LinkGeneration(31.5e9, 1),
    "pcie5-x16": LinkGeneration(63e9, 1),
    "roce-100g": LinkGeneration(12.5e9, 24),
    "roce-200g": LinkGeneration(25e9, 24),
    "ici-v5e": LinkGeneration(50e9, 4),
    "ici-v5p": LinkGeneration(100e9, 6),
    "slingshot-11": LinkGeneration(25e9, 1),
    "efa-100": LinkGeneration(12.5e9, 4),
    "hdr100": LinkGeneration(12.5e9, 1),
    "hdr": LinkGeneration(25e9, 2),
    "ndr200": LinkGeneration(25e9, 1),
    "ndr": LinkGeneration(50e9, 1),
}


def find_architecture(name: str | None, what: str) -> Architecture | None:
    """The architecture called ``name``; None for a chip that names none, whose dtypes and peaks cannot be checked."""
    if name is not None and name not in ARCHITECTURES:
        raise UserError(f"{what}: there is no architecture '{name}'.", did_you_mean(name, ARCHITECTURES))
    return ARCHITECTURES[name] if name else None


def check_dtype(chip: Architecture | None, name: str | None, dtype: str, density: str | None, what: str) -> None:
    """Refuse a dtype that nothing has or that the chip lacks, and sparse peaks of a chip without sparsity."""
    if dtype not in DTYPES:
        raise UserError(f"{what}: there is no dtype '{dtype}'.", did_you_mean(dtype, DTYPES))
    if chip is None:
        return
    if dtype not in chip.matrix_flops and dtype not in chip.others:
        has = ", ".join(d for d in DTYPES if d in chip.matrix_flops or d in chip.others)
        raise UserError(f"{what}: {name} chips do not compute in {dtype}.", f"They have {has}.")
    if density == "sparse" and not chip.sparsity:
        raise UserError(f"{what}: {name} chips have no sparse arithmetic.", "Give the dense peak.")


def check_peaks(
    chip: Architecture | None,
    peaks: Mapping[str, float],
    num_units: float | None,
    clock_hz: float | None,
    num_packages: float,
    what: str,
) -> None:
    """Refuse dense peaks (FLOP/s of a card, by dtype) that the chip cannot have, or that contradict each other."""
    if chip is None:
        return
    for dtype in ("bf16", "fp16"):
        most = (chip.most_flops or math.inf) * num_packages
        if peaks.get(dtype, 0) > most * (1 + TOLERANCE):
            whole = " The figure of a whole package?" if num_packages < 1 else _guess(peaks[dtype] / most)
            raise UserError(
                f"{what}: {peaks[dtype] / 1e12:g} TFLOP/s in {dtype} is more than any chip of its generation does "
                f"({most / 1e12:g}).{whole}",
                "",
            )
    if num_units and clock_hz:
        for dtype in peaks.keys() & chip.matrix_flops.keys():
            can = num_units * clock_hz * chip.matrix_flops[dtype]
            if abs(peaks[dtype] / can - 1) > TOLERANCE:
                raise UserError(
                    f"{what}: {peaks[dtype] / 1e12:g} TFLOP/s in {dtype} is not what {num_units:g} units at "
                    f"{clock_hz / 1e6:g} MHz do ({can / 1e12:.4g}).{_guess(peaks[dtype] / can)}",
                    "Check for another card's figure, a sparse one, or one at a clock that it does not ship with.",
                )
    _check_ratios(chip, peaks, what)


def _check_ratios(chip: Architecture, peaks: Mapping[str, float], what: str) -> None:
    """Peaks of two dtypes are to each other as what a unit does in them."""
    known = [d for d in ("bf16", "fp16", *chip.matrix_flops) if d in peaks and d in chip.matrix_flops]
    for dtype in known[1:]:
        first = known[0]
        ratio, right = peaks[dtype] / peaks[first], chip.matrix_flops[dtype] / chip.matrix_flops[first]
        if abs(ratio / right - 1) > TOLERANCE:
            raise UserError(
                f"{what}: {dtype} is {ratio:.3g} times as fast as {first}, but {right:g} times on chips of its "
                f"generation.{_guess(ratio / right)}",
                "",
            )


def check_bandwidth(chip: Architecture | None, bytes_per_second: float, num_packages: float, what: str) -> None:
    """Refuse a bandwidth of the memory that is beyond its generation, or so far below it that bits were taken for bytes."""
    if chip is None:
        return
    share = bytes_per_second / (chip.most_bytes_per_second * num_packages)
    if share > 1 + TOLERANCE or share < 1 / 7:
        doubt = "Bits entered as bytes, or a whole package's?" if share > 1 else "Bytes entered as bits?"
        raise UserError(
            f"{what}: {bytes_per_second / 1e9:g} GB/s, but the fastest memory of its generation has "
            f"{chip.most_bytes_per_second * num_packages / 1e9:g} GB/s. {doubt}",
            "",
        )


def check_link(technology: str | None, bytes_per_second: float, links_per_card: float, what: str) -> None:
    """Refuse a rate (one direction, one card) that so many links of this generation do not have."""
    if technology not in LINKS:
        raise UserError(f"{what}: there is no technology '{technology}'.", did_you_mean(str(technology), LINKS))
    link = LINKS[technology]
    if links_per_card > link.most_per_card:
        raise UserError(
            f"{what}: a card has at most {link.most_per_card} links of {technology}, not {links_per_card:g}.", ""
        )
    right = link.bytes_per_second * links_per_card
    if abs(bytes_per_second / right - 1) > TOLERANCE:
        raise UserError(
            f"{what}: {bytes_per_second / 1e9:g} GB/s in one direction, but {links_per_card:g} x {technology} is "
            f"{right / 1e9:g} GB/s.{_guess(bytes_per_second / right, link=True)}",
            "",
        )


def _guess(ratio: float, *, link: bool = False) -> str:
    """What a factor of 2 or 8 usually means."""
    if abs(ratio - 2) < 0.1:
        return " Both directions together?" if link else " A sparse figure entered as dense?"
    if abs(ratio - 0.5) < 0.03:
        return " Halved twice?"
    if link and abs(ratio - 8) < 0.4:
        return " Bits entered as bytes?"
    if link and abs(ratio - 0.125) < 0.01:
        return " Bytes entered as bits?"
    return ""
