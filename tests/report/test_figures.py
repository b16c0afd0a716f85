from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from xml.etree import ElementTree

import matplotlib
import pytest

from genaccel.plans import FORMATS
from genaccel.report.figures import LOOKS, LayerDot, PlanCell, QualityPoint, draw_plan, draw_quality, draw_sensitivity

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "]]>&amp;<!--", r"$\frac{$ $$"]


def sensitivity(text: str = "bf16") -> str:
    return draw_sensitivity(text, text, [LayerDot(0, 0.5, "int8"), LayerDot(1, 0.75, text)]).svg


def plan(text: str = "bf16") -> str:
    cells = [
        PlanCell(None, "embedding", "bf16", "embed"),
        PlanCell(0, text, "int8", "layers.0.q"),
        PlanCell(1, text, text, "layers.1.q"),
        PlanCell(None, "head", "fp16", "head"),
    ]
    return draw_plan(text, cells).svg


def quality(text: str = "real cpu") -> str:
    points = [QualityPoint(2.0, 20.5, text, text, True), QualityPoint(4.0, 21.0, "fake", "b", False)]
    return draw_quality(text, points, 20.0).svg


DRAWINGS = [sensitivity, plan, quality]


def marks(svg: str) -> dict[str, ElementTree.Element]:
    """The group of every mark by its tooltip."""
    return {g[0].text or "": g for g in ElementTree.fromstring(svg).iter("g") if len(g) and g[0].tag == "title"}


def position(mark: ElementTree.Element) -> tuple[float, float]:
    (use,) = mark.iter("use")
    return float(use.attrib["x"]), float(use.attrib["y"])


def test_sensitivity_places_scores_and_says_them() -> None:
    dots = [LayerDot(0, 0.5, "int8"), LayerDot(1, 1.5, "bf16"), LayerDot(2, 1.0, "")]
    found = marks(draw_sensitivity("model", "metric", dots).svg)
    assert list(found) == ["layer 0: 0.5, int8", "layer 1: 1.5, bf16", "layer 2: 1"]
    (x0, low), (x1, high), (x2, middle) = map(position, found.values())
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert low - middle == pytest.approx(middle - high), "1.0 lies half way between 0.5 and 1.5"
    assert low > high, "SVG's y grows downwards"


def test_plan_has_a_tile_for_every_weight_in_its_format() -> None:
    found = marks(plan())
    assert set(found) == {"embed: bf16", "layers.0.q: int8", "layers.1.q: bf16", "head: fp16"}
    fill = {name: next(g.iter("path")).attrib["style"] for name, g in found.items()}
    assert fill["embed: bf16"] == fill["layers.1.q: bf16"]
    assert "#0072b2" in fill["embed: bf16"]
    assert "#56b4e9" in fill["head: fp16"]
    assert "url(#" in fill["layers.0.q: int8"], "int8 is hatched, not only coloured"
    left = {name: float(re.findall(r"M ([\d.]+)", next(g.iter("path")).attrib["d"])[0]) for name, g in found.items()}
    assert sorted(left, key=lambda name: left[name]) == [
        "embed: bf16", "layers.0.q: int8", "layers.1.q: bf16", "head: fp16"
    ]  # fmt: skip


def test_quality_places_points_and_hollows_what_is_predicted() -> None:
    found = marks(quality())
    names = ["b: 4.00x (predicted), perplexity 21.000", "real cpu: 2.00x, perplexity 20.500"]
    assert list(found) == [*names, "FP32: 1x by definition, perplexity 20.000"]
    (x4, y4), (x2, y2), (x1, y1) = map(position, found.values())
    assert (x4 - x2) / (x2 - x1) == pytest.approx(2.0)
    assert (y4 - y2) == pytest.approx(y2 - y1)
    face = {name: next(found[name].iter("use")).attrib["style"] for name in names}
    assert "fill-opacity: 0" in face[names[0]] or "fill: none" in face[names[0]]
    assert "fill: #d55e00" in face[names[1]]


def test_wide_ranges_are_drawn_on_a_logarithmic_scale() -> None:
    points = [QualityPoint(2.0, 100.0, "a", "a", True), QualityPoint(3.0, 10000.0, "a", "b", True)]
    (_, y100), (_, y10000), (_, y1) = map(position, marks(draw_quality("model", points, 1.0).svg).values())
    assert (y1 - y100) == pytest.approx(y100 - y10000)


def test_every_format_has_a_look_of_its_own() -> None:
    assert set(FORMATS) <= set(LOOKS)
    assert len({(LOOKS[f].colour, LOOKS[f].hatch) for f in FORMATS}) == len(FORMATS)
    assert len({(LOOKS[f].colour, LOOKS[f].marker) for f in FORMATS}) == len(FORMATS)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("draw", DRAWINGS)
def test_hostile_text_stays_text(draw: Callable[[str], str], text: str) -> None:
    root = ElementTree.fromstring(draw(text))
    assert not {e.tag for e in root.iter()} & {"script", "img", "style", "foreignObject", "a"}
    assert not [k for e in root.iter() for k in e.attrib if k.lower().startswith("on")]
    assert any(text in (e.text or "") for e in root.iter("text")), "it is drawn as it is"


@pytest.mark.parametrize("text", ["a\x00b\x1b\ud800", "two\nlines", "模型 🦙", "x" * 500, "_hidden", ""])
@pytest.mark.parametrize("draw", DRAWINGS)
def test_odd_text_can_be_drawn(draw: Callable[[str], str], text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = draw(text)
    assert max(len(e.text or "") for e in ElementTree.fromstring(svg).iter("text")) < 80
    assert not re.search("[\x00\x1b\ud800]", svg)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_fit_for_a_page(draw: Callable[[], str]) -> None:
    svg = draw()
    assert "http" not in svg
    assert "#010203" not in svg, "the ink follows the page"
    root = ElementTree.fromstring(svg)
    assert root.tag == "svg"
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"]
    ids = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"url\(#([^)]+)\)", svg)) | set(re.findall(r'href="#([^"]+)"', svg)) <= set(ids)


def test_pictures_on_one_page_share_no_id() -> None:
    ids = [set(re.findall(r' id="([^"]+)"', draw())) for draw in DRAWINGS]
    assert all(ids)
    assert not ids[0] & ids[1]
    assert not ids[0] & ids[2]
    assert not ids[1] & ids[2]


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_user_s_own_settings_change_nothing_and_are_left_alone(draw: Callable[[], str]) -> None:
    plain = draw()
    with matplotlib.rc_context({"font.size": 31.0, "axes.labelpad": 20.0, "svg.fonttype": "path"}):
        assert draw() == plain
        assert matplotlib.rcParams["font.size"] == 31.0
