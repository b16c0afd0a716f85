"""The report's pictures: numbers in, a drawing out, the same bytes for the same numbers.

No colour carries a meaning alone: formats also differ by hatch or marker, series by marker, and what is only predicted
is hollow. Every mark says its numbers in a tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from genaccel.report.drawing import INK, Drawing, printable, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches of 72 SVG units
GRID: dict[str, Any] = {"color": INK, "alpha": 0.15, "linewidth": 0.5}
LONGEST_LABEL = 48  # characters; a longer name would push the drawing off its canvas


@dataclass(frozen=True)
class Look:
    """How a format is drawn: a colour of the Okabe-Ito palette, a hatch where it fills, a marker where it is a dot."""

    colour: str
    hatch: str
    marker: str


LOOKS = {
    "": Look("#999999", "", "o"),
    "fp32": Look("#999999", "", "D"),
    "bf16": Look("#0072b2", "", "o"),
    "fp16": Look("#56b4e9", "", "o"),
    "int8": Look("#e69f00", "////", "s"),
    "fp8_e4m3": Look("#d55e00", "\\\\\\\\", "^"),
    "fp8_e5m2": Look("#cc79a7", "xxxx", "v"),
    "int4_g32": Look("#009e73", "....", "P"),
    "int4_g64": Look("#009e73", "++++", "X"),
    "int4_g128": Look("#009e73", "----", "d"),
}
OTHER_LOOK = Look("#f0e442", "**", "*")  # a format of a later version, or a layer that mixes several
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
SERIES_MARKERS = "os^Dv"


@dataclass(frozen=True)
class LayerDot:
    """Sensitivity of one decoder layer and the format that the plan gives it ('' when there is no plan)."""

    layer: int
    score: float
    format: str


@dataclass(frozen=True)
class PlanCell:
    """Format of one stored weight. ``layer`` is None for a weight outside the decoder layers; ``row`` is its role then."""

    layer: int | None
    row: str
    format: str
    name: str


@dataclass(frozen=True)
class QualityPoint:
    """One judged model: compression against FP32, perplexity, and whether both numbers were measured."""

    compression: float
    perplexity: float
    series: str
    name: str
    measured: bool


def draw_sensitivity(model: str, metric: str, dots: Sequence[LayerDot]) -> Drawing:
    """Score by decoder layer; marker and colour say which format the plan gave the layer."""
    tips: list[str] = []
    with style():
        figure, axes = canvas(2.6)
        axes.plot([d.layer for d in dots], [d.score for d in dots], color=INK, alpha=0.3, linewidth=0.7)
        for dot in dots:
            _dot(axes, dot.layer, dot.score, LOOKS.get(dot.format, OTHER_LOOK), gid=gid(tips))
            tips.append(f"layer {dot.layer}: {dot.score:.6g}" + (f", {dot.format}" if dot.format else ""))
        axes.set_xlabel("decoder layer")
        axes.set_ylabel(label(f"sensitivity ({metric})"))
        axes.set_xticks(_layer_ticks(max(d.layer for d in dots) + 1))
        axes.grid(axis="y", **GRID)
        names = sorted({d.format for d in dots if d.format})
        legend(axes, [_dot(axes, [], [], LOOKS.get(n, OTHER_LOOK), label=label(n)) for n in names])
        return Drawing(figure, f"Sensitivity of each decoder layer of {model} ({metric})", tuple(tips))


def draw_plan(model: str, cells: Sequence[PlanCell]) -> Drawing:
    """The plan: modules down, decoder layers across, embedding to the left and head to the right."""
    from matplotlib.patches import Patch

    rows = list(dict.fromkeys(c.row for c in cells if c.layer is not None))
    num_layers = max((c.layer for c in cells if c.layer is not None), default=-1) + 1
    with style():
        longest = max((len(label(row)) for row in rows), default=0)
        figure, axes = canvas(1.1 + 0.2 * max(len(rows), 3), left=0.2 + 0.074 * longest)
        tips: list[str] = []
        for cell in cells:
            if cell.layer is not None:
                _tile(axes, cell, (cell.layer - 0.45, rows.index(cell.row) - 0.43, 0.9, 0.86), tips)
        left, right = _draw_outside(axes, cells, num_layers, len(rows), tips)
        axes.set_xlim(left - 0.2, right + 0.2)
        axes.set_ylim(max(len(rows), 1) - 0.4, -1.3)
        axes.set_yticks(range(len(rows)), [label(row) for row in rows])
        axes.set_xticks(_layer_ticks(num_layers))
        axes.set_xlabel("decoder layer")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        names = sorted({c.format for c in cells})
        legend(axes, [Patch(label=label(n), **_fill(n)) for n in names])
        return Drawing(figure, f"Number format of every stored weight of {model}", tuple(tips))


def _draw_outside(
    axes: Axes, cells: Sequence[PlanCell], num_layers: int, num_rows: int, tips: list[str]
) -> tuple[float, float]:
    """Draw the weights outside the decoder layers as high tiles; returns the drawing's left and right end."""
    width, gap = max(num_layers * 0.025, 0.9), max(num_layers * 0.015, 0.4)
    left, right, named = -0.5, num_layers - 0.5, set()
    for cell in reversed([c for c in cells if c.layer is None]):
        if cell.row == "head":
            x = right + gap
            right = x + width
        else:
            x = left - gap - width
            left = x
        _tile(axes, cell, (x, -0.43, width, max(num_rows, 1) - 0.14), tips)
        if cell.row not in named:
            named.add(cell.row)
            axes.text(x + width / 2, -0.6, label(cell.row), ha="center", va="bottom")
    return left, right


def draw_quality(model: str, points: Sequence[QualityPoint], fp32_perplexity: float | None) -> Drawing:
    """Perplexity over compression, the FP32 model as a star at 1x and a dashed line."""
    with style():
        figure, axes = canvas(3.0, left=0.95)  # perplexities can have six digits
        tips: list[str] = []
        handles: dict[str, Any] = {}
        for index, series in enumerate(sorted({p.series for p in points})):
            colour = SERIES_COLOURS[index % len(SERIES_COLOURS)]
            look = Look(colour, "", SERIES_MARKERS[index % len(SERIES_MARKERS)])
            own = [p for p in points if p.series == series]
            handles[series] = _dot(axes, [], [], look, label=label(series), **_face(look, any(p.measured for p in own)))
            for point in own:
                _dot(axes, point.compression, point.perplexity, look, gid=gid(tips), **_face(look, point.measured))
                kind = "" if point.measured else " (predicted)"
                tips.append(f"{point.name}: {point.compression:.2f}x{kind}, perplexity {point.perplexity:.3f}")
        if fp32_perplexity is not None:
            axes.axhline(fp32_perplexity, color=INK, alpha=0.5, linewidth=0.8, linestyle="--", zorder=0)
            star = Look(INK, "", "*")
            handles["FP32"] = _dot(axes, 1.0, fp32_perplexity, star, gid=gid(tips), label="FP32", markersize=9)
            tips.append(f"FP32: 1x by definition, perplexity {fp32_perplexity:.3f}")
        values = [p.perplexity for p in points] + [v for v in [fp32_perplexity] if v is not None]
        if max(values) > 5 * min(values) > 0:
            log_scale(axes, "y")
        axes.margins(0.08, 0.15)
        axes.set_xlabel("compression against FP32 (x)")
        axes.set_ylabel("perplexity (lower is better)")
        axes.grid(**GRID)
        legend(axes, list(handles.values()))
        return Drawing(figure, f"Perplexity of {model} against compression", tuple(tips))


# --- Drawing ----------------------------------------------------------------------------------------------------------


def canvas(height: float, left: float = 0.75) -> tuple[Figure, Axes]:
    """A figure of one width, ``height`` in inches, with room for the legend above and ``left`` inches for labels.

    Fixed margins, because an automatic layout draws everything twice and depends on the fonts it finds.
    """
    from matplotlib.figure import Figure

    bottom, top, right = 0.48, 0.32, 0.08
    figure = Figure(figsize=(WIDTH, height))
    box = (left / WIDTH, bottom / height, (WIDTH - left - right) / WIDTH, (height - bottom - top) / height)
    return figure, figure.add_axes(box)


def _dot(axes: Axes, x: Any, y: Any, look: Look, **more: Any) -> Any:
    options = {"color": look.colour, "marker": look.marker, "markeredgecolor": INK, "linestyle": "none"} | more
    return axes.plot(x, y, **options)[0]


def _face(look: Look, filled: bool) -> dict[str, Any]:
    face = look.colour if filled else "none"
    return {"markerfacecolor": face, "markeredgecolor": look.colour, "markeredgewidth": 1.4}


def _tile(axes: Axes, cell: PlanCell, box: tuple[float, float, float, float], tips: list[str]) -> None:
    from matplotlib.patches import Rectangle

    x, y, width, height = box
    # add_patch would also search each tile for the axes' limits, which are set anyway: half of the time.
    axes.add_artist(Rectangle((x, y), width, height, gid=gid(tips), **_fill(cell.format)))
    tips.append(f"{cell.name}: {cell.format}")


def _fill(name: str) -> dict[str, Any]:
    look = LOOKS.get(name, OTHER_LOOK)
    return {"facecolor": look.colour, "hatch": look.hatch, "edgecolor": "#1a1a1a", "linewidth": 0.3}


def _layer_ticks(num_layers: int) -> range:
    step = next((s for s in (1, 2, 5, 10, 20) if num_layers <= 16 * s), 50)
    return range(0, num_layers, step)


def legend(axes: Axes, handles: list[Any], side: Literal["left", "right"] = "left") -> None:
    """Above the drawing in one row, flush with one side of it: the right, where long labels leave it little width."""
    if handles:
        crowded = len(handles) > 6
        spacing = (
            {"handletextpad": 0.2, "columnspacing": 0.8} if crowded else {"handletextpad": 0.4, "columnspacing": 1.4}
        )
        size = 6.5 if crowded else 9.0
        axes.legend(
            handles=handles,
            loc="lower left" if side == "left" else "lower right",
            bbox_to_anchor=(0 if side == "left" else 1, 1),
            ncols=len(handles),
            fontsize=size,
            **spacing,
        )


def log_scale(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis whose ticks are plain numbers: matplotlib would write powers in TeX, which is off here."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def label(text: str) -> str:
    """``text`` as it can be drawn: one line, no character that XML forbids, not too long."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= LONGEST_LABEL else text[: LONGEST_LABEL - 1] + "…"


def gid(tips: list[str]) -> str:
    """The name of the mark whose tooltip is appended to ``tips`` next."""
    return f"tip-{len(tips)}"
