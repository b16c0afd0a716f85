"""The commands: each parses, calls one function and prints. Heavy imports happen inside them."""

from __future__ import annotations

from cyclopts import App, Parameter

from genaccel import __version__

app = App(
    name="genaccel",
    help="Make generative AI models cheaper to run, and measure what that bought.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative_iterable=()),
)
Flat = Parameter(name="*")
