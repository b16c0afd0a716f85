"""From a matplotlib figure to an ``<svg>`` element that can stand inside an HTML page, or to a PDF for a paper.

No namespaces (so no web address), no date, no style sheet of its own, ids that cannot meet those of another picture,
``INK`` becomes ``currentColor`` so that it follows dark mode, and marks get a ``<title>``, which browsers show as a
tooltip. Text stays text and is escaped by the XML writer.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#010203"  # stands for the page's own text colour until the SVG is finished


STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "genaccel",
    "text.parse_math": False,  # a '$' in a model's name is a dollar sign
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "lines.markersize": 6.0,
    "lines.markeredgewidth": 0.5,
} | dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)


@contextmanager
def style() -> Iterator[None]:
    """Our own settings on top of matplotlib's defaults, so that a user's matplotlibrc changes nothing."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that the measuring font lacks; the page's font is another anyway
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(cast(Any, STYLE))  # its keys are typed one by one, in some versions
        yield


@dataclass(frozen=True)
class Drawing:
    """A figure, what it shows, and the tooltips of its marks: the artist with gid ``tip-3`` gets ``tips[3]``."""

    figure: Figure
    title: str
    tips: tuple[str, ...]

    @property
    def svg(self) -> str:
        """An ``<svg>`` element described by the title."""
        buffer = io.BytesIO()
        with style():
            self.figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
        root = ElementTree.fromstring(buffer.getvalue())
        prefix = hashlib.sha256(buffer.getvalue() + repr((self.title, list(self.tips))).encode()).hexdigest()[:8]
        # matplotlib's style sheet would apply to the whole page; the report's own has those rules for pictures.
        for parent in list(root.iter()):
            for child in [c for c in parent if _local(c.tag) in ("metadata", "style")]:
                parent.remove(child)
        for element in list(root.iter()):
            _adapt(element, prefix, self.tips)
        for size in ("width", "height"):
            root.attrib.pop(size, None)
        root.set("role", "img")
        root.set("aria-label", printable(self.title))
        return ElementTree.tostring(root, encoding="unicode")

    @property
    def pdf(self) -> bytes:
        """A page of its own, with text as text."""
        buffer = io.BytesIO()
        with style():
            self.figure.savefig(buffer, format="pdf", metadata={"CreationDate": None, "Title": printable(self.title)})
        return buffer.getvalue()


def _adapt(element: ElementTree.Element, prefix: str, tips: Sequence[str]) -> None:
    """Strip namespaces, follow the page's ink, keep ids apart by ``prefix``, add the tooltip of a mark."""
    element.tag = _local(element.tag)
    attributes = {_local(key): value for key, value in element.attrib.items()}
    element.attrib.clear()
    for key, value in attributes.items():
        if key == "id":
            if value.startswith("tip-"):
                tip = ElementTree.Element("title")
                tip.text = printable(tips[int(value[4:])])
                element.insert(0, tip)
            elif element.tag != "g":  # groups are never referred to
                element.set("id", f"{prefix}-{value}")
        elif key == "href":
            element.set("href", f"#{prefix}-{value[1:]}")
        else:
            value = re.sub(r"font-family: [^;]*;? ?", "", value)  # the page's
            element.set(key, value.replace("url(#", f"url(#{prefix}-").replace(INK, "currentColor"))


def _local(name: str) -> str:
    """A tag or attribute without its XML namespace."""
    return name.rpartition("}")[2]


def printable(text: str) -> str:
    """``text`` without the characters that XML cannot hold."""
    return re.sub("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]", "\ufffd", text)
