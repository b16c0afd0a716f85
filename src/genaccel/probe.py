"""Measure a machine as the catalogue describes one: matrix products by dtype, memory, links between processes.

Every figure is the median of several repeats after warm-up, the device synchronized before the clock is read. What is
written is an accelerator file of kind 'measured': its peaks are what torch's own kernels reach, not what the chip could.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel import console
from genaccel.measure import SPREAD_WARNING, Samples, repeat

if TYPE_CHECKING:
    import torch

    from genaccel.devices import Device

SMALLEST, LARGEST = 256, 16384
LONG_SECONDS = 0.1
"""Products grow until one takes as long as this: then starting it costs nothing that counts."""
NUM_SIZES = 3
SPENT_SECONDS, MOST_REPEATS = 0.3, 50
"""Short products are repeated for this long: five of a millisecond say more of the others on a machine than of it."""
ARRAY_BYTES = 256_000_000
CACHES = 4
"""Arrays are this many times as large as the last cache, or larger."""


@dataclass(frozen=True)
class Found:
    """A figure that was measured: ``value`` in ``unit``, from which ``samples`` (seconds), and how."""

    name: str
    value: float
    unit: str
    samples: Samples
    note: str

    @property
    def remark(self) -> str:
        """How it was obtained, for the file."""
        return f"{self.note}; median of {len(self.samples.values)}, spread {self.samples.spread:.0%}"


@dataclass(frozen=True)
class Probed:
    """Everything that was measured, and why something was not."""

    figures: tuple[Found, ...]
    absent: dict[str, str]


# --- Matrix products ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product:
    """How a square matrix product of one dtype is computed: ``prepare`` gives the function to time."""

    dtype: str
    unit: str
    kernel: str
    prepare: Callable[[int, torch.device], Callable[[], object]]


def _plain(name: str) -> Callable[[int, torch.device], Callable[[], object]]:
    def prepare(size: int, device: torch.device) -> Callable[[], object]:
        import torch

        dtype = getattr(torch, name)
        a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        out = torch.empty(size, size, device=device, dtype=dtype)
        return lambda: torch.mm(a, b, out=out)

    return prepare


def _int8(size: int, device: torch.device) -> Callable[[], object]:
    import torch

    a, b = (torch.randint(-127, 128, (size, size), device=device, dtype=torch.int8) for _ in range(2))
    columns = b.t().contiguous().t()
    return lambda: torch._int_mm(a, columns)


def _fp8(size: int, device: torch.device) -> Callable[[], object]:
    import torch

    a, b = (torch.randn(size, size, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    columns, one = b.t().contiguous().t(), torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _tf32(size: int, device: torch.device) -> Callable[[], object]:
    """The fp32 product with torch allowed to round its inputs; refused where it does not."""
    import torch

    multiply = _plain("float32")(size, device)

    def rounded() -> object:
        torch.set_float32_matmul_precision("high")
        try:
            return multiply()
        finally:
            torch.set_float32_matmul_precision("highest")

    exact = multiply().clone()  # type: ignore[attr-defined]
    if torch.equal(exact, rounded()):  # type: ignore[arg-type]
        raise RuntimeError("the device does not round the inputs of fp32 products")
    return rounded


PRODUCTS = (
    Product("fp32", "FLOP/s", "torch.mm", _plain("float32")),
    Product("tf32", "FLOP/s", "torch.mm", _tf32),
    Product("bf16", "FLOP/s", "torch.mm", _plain("bfloat16")),
    Product("fp16", "FLOP/s", "torch.mm", _plain("float16")),
    Product("int8", "OP/s", "torch._int_mm", _int8),
    Product("fp8", "FLOP/s", "torch._scaled_mm, e4m3", _fp8),
    Product("fp64", "FLOP/s", "torch.mm", _plain("float64")),
)


def matmul_figures(product: Product, device: Device, long_seconds: float = LONG_SECONDS) -> list[Found]:
    """The rate of the product at its largest sizes, the fastest first.

    Sizes double until a product takes ``long_seconds``. What torch says when it cannot is raised on.
    """
    found: list[Found] = []
    spent = min(SPENT_SECONDS, 3 * long_seconds)
    for size, seconds in _sizes(product, device, long_seconds)[-NUM_SIZES:]:
        num_repeats = max(5, min(MOST_REPEATS, round(spent / seconds)))
        samples = repeat(product.prepare(size, device.torch_device()), device, num_repeats=num_repeats)
        rate = 2 * size**3 / samples.median
        found.append(Found(f"matmul_{product.dtype}_{size}", rate, product.unit, samples, product.kernel))
    return sorted(found, key=lambda f: -f.value)


def _sizes(product: Product, device: Device, long_seconds: float) -> list[tuple[int, float]]:
    """Sizes and about how long a product takes: the shortest of three calls, for others may hold up any of them."""
    sizes: list[tuple[int, float]] = []
    size = SMALLEST
    while size <= LARGEST and (not sizes or sizes[-1][1] < long_seconds):
        multiply = product.prepare(size, device.torch_device())
        first = repeat(multiply, device, num_warmup=1, num_repeats=1).median
        more = repeat(multiply, device, num_warmup=0, num_repeats=2).values if first < 10 * long_seconds else ()
        sizes.append((size, min(first, *more) if more else first))
        size *= 2
    return sizes


# --- Memory -------------------------------------------------------------------------------------------------------------


def memory_figures(device: Device, array_bytes: int) -> list[Found]:
    """Rates of McCalpin's copy (c = a) and triad (a = b + s c) on arrays of fp32, bytes read and written counted."""
    import torch

    count = array_bytes // 4
    a, b, c = (torch.ones(count, device=device.torch_device()) for _ in range(3))
    kernels: tuple[tuple[str, int, Callable[[], object]], ...] = (
        ("copy", 2, lambda: c.copy_(a)),
        ("triad", 3, lambda: torch.add(b, c, alpha=3.0, out=a)),
    )
    note = f"arrays of {console.format_bytes(4 * count)}"
    found = []
    for name, arrays, kernel in kernels:
        samples = repeat(kernel, device)
        found.append(Found(f"{name}_memory", arrays * 4 * count / samples.median, "B/s", samples, f"{name}, {note}"))
    return found


def array_size(cache_bytes: int | None, memory_bytes: int | None) -> int:
    """Bytes of an array that no cache holds, while three of them take an eighth of the memory at most."""
    wanted = max(ARRAY_BYTES, CACHES * (cache_bytes or 0))
    return min(wanted, memory_bytes // 24) if memory_bytes else wanted


def last_cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """The largest cache that the first processor shares, as Linux reports it; None elsewhere."""
    found = []
    for file in root.glob("index*/size"):
        number = re.fullmatch(r"(\d+)([KM])", file.read_text().strip())
        if number:
            found.append(int(number[1]) * {"K": 2**10, "M": 2**20}[number[2]])
    return max(found, default=None)


# --- All together -------------------------------------------------------------------------------------------------------


def probe(
    device: Device,
    links: Callable[[], list[Found]] | str,
    long_seconds: float = LONG_SECONDS,
    kernels: Callable[[Device, int], list[Found]] | None = None,
) -> Probed:
    """Measure everything, showing progress. ``links`` measures between processes, or says why that is not possible.

    ``kernels`` measures what a model's other kernels reach, given the size of an array that no cache holds.
    """
    figures: list[Found] = []
    absent: dict[str, str] = {}
    with console.progress("Probing", total=len(PRODUCTS) + 3) as advance:
        for product in PRODUCTS:
            try:
                by_size = matmul_figures(product, device, long_seconds)
            except (RuntimeError, TypeError, NotImplementedError) as error:  # whatever torch raises for what it lacks
                absent[f"peak_flops.{product.dtype}"] = f"{product.kernel} cannot: {_first_line(error)}"
                advance(f"{product.dtype}: not computed")
                continue
            best = by_size[0]
            note = f"{product.kernel} at {best.name.rpartition('_')[2]}, the fastest size"
            figures.append(Found(f"peak_flops.{product.dtype}", best.value, best.unit, best.samples, note))
            figures += by_size
            advance(f"{product.dtype}: {best.value / 1e9:,.3g} G{best.unit}")
        size = array_size(last_cache_bytes(), device.memory_bytes())
        memory = memory_figures(device, size)
        figures += [Found("memory_bandwidth", memory[1].value, "B/s", memory[1].samples, memory[1].note), *memory]
        advance(f"memory: {memory[1].value / 1e9:.3g} GB/s")
        if kernels is not None:
            figures += kernels(device, size)
        advance("attention, convolution, starts")
        if isinstance(links, str):
            absent["link"] = links
        else:
            figures += links()
        advance("links")
    for figure in figures:
        if figure.samples.spread > SPREAD_WARNING and "matmul_" not in figure.name:
            console.warn(f"{figure.name} varies by {figure.samples.spread:.0%}: something else may be running.")
    return Probed(tuple(figures), absent)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rstrip(".")[:120]


# --- The file -----------------------------------------------------------------------------------------------------------

WRITTEN = {
    "FLOP/s": ("TFLOP/s", 1e12),
    "OP/s": ("TOP/s", 1e12),
    "B/s": ("GB/s", 1e9),
    "s": ("us", 1e-6),
    "B": ("GB", 1e9),
}


def to_toml(probed: Probed, name: str, about: dict[str, Any], memory_bytes: int | None, date: str) -> str:
    """An accelerator file of what was measured, which ``hardware.read_accelerator`` reads back."""
    lines = [f"name = {_quoted(name)}", f"description = {_quoted(about['description'])}"]
    lines += [f"runtime = {_quoted(about['runtime'])}", ""]
    top, peaks, measured = [], [], []
    if memory_bytes:
        top.append(f"memory = {_entry(memory_bytes, 'B', note='what new work could have when it was probed')}")
    for figure in probed.figures:
        group, _, rest = figure.name.partition(".")
        if group == "peak_flops":
            peaks.append(f"{rest} = {_entry(figure.value, figure.unit, density='dense', note=figure.remark)}")
        elif figure.name == "link":
            top.append(f"link = {_entry(figure.value, figure.unit, direction='one', note=figure.remark)}")
        elif figure.name == "memory_bandwidth":
            top.append(f"memory_bandwidth = {_entry(figure.value, figure.unit, note=figure.remark)}")
        else:
            measured.append(f"{figure.name} = {_entry(figure.value, figure.unit, note=figure.remark)}")
    for missing, reason in probed.absent.items():
        group, _, rest = missing.partition(".")
        (peaks if rest else top).append(f"{rest or group} = {{ absent = {_quoted(reason)} }}")
    lines += [*top, "", "[peak_flops]", *peaks, "", "[measured]", *measured]
    return "\n".join(
        [*lines, "", "[sources.probe]", f"title = {_quoted(about['source'])}", f"date = {_quoted(date)}", ""]
    )


def _entry(value: float, unit: str, **qualifiers: str) -> str:
    name, scale = WRITTEN[unit]
    parts = [
        f"value = {value / scale!r}",
        f"unit = {_quoted(name)}",
        'per = "card"',
        'kind = "measured"',
        'source = "probe"',
    ]
    return "{ " + ", ".join([*parts, *(f"{key} = {_quoted(text)}" for key, text in qualifiers.items())]) + " }"


def _quoted(text: str) -> str:
    import json

    return json.dumps("".join(c if c.isprintable() else " " for c in text), ensure_ascii=False)


def slug(text: str) -> str:
    """A name for a file or a table: 'Intel(R) Xeon(R) @ 2.2GHz' -> 'intel-r-xeon-r-2-2ghz'."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
