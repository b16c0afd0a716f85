"""Times from work: each product is bound by arithmetic or by memory, whichever takes longer, with a soft corner.

All functions take numbers or numpy arrays, so that ten thousand configurations cost little more than one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CORNER = 3.0
"""How sharply the roofline bends: matrix products of A100, H100, H200 and B200 are within 4 % (median) at 2.3 to 7."""


def longer(a: Any, b: Any, corner: float = CORNER) -> Any:
    """The longer of two times that overlap, a little above it where they are alike."""
    return (np.power(a, corner) + np.power(b, corner)) ** (1 / corner)


def exposed(communication: Any, hidden_behind: Any, share: Any) -> Any:
    """What is left of ``communication`` when ``share`` of the computation's time can hide it; a soft maximum with 0."""
    excess = communication - share * hidden_behind
    return 0.5 * (excess + np.sqrt(excess**2 + (0.05 * hidden_behind) ** 2)) * (communication > 0)
