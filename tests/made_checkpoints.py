"""Plans and checkpoints of tiny models, for tests."""

from __future__ import annotations

from genaccel import models
from genaccel.plans import PrecisionPlan
from genaccel.quantize import checkpoint
from genaccel.store import whole_folder


def plan_for(layout, form: str) -> PrecisionPlan:
    """``form`` for the second decoder layer, bf16 and fp32 elsewhere, so that formats are mixed."""
    formats = {w.name: "bf16" for w in layout.stored if w.layer is None}
    formats |= {layout.layer_name(0): "fp32", layout.layer_name(1): form}
    return PrecisionPlan("tiny", "cpu", "by hand", formats)


def save(folder, source, plan, mode="real"):
    layout = models.layout_of(source)
    with whole_folder(folder) as new:
        return checkpoint.write_checkpoint(new, source, layout, models.open_weights(source, layout), plan, mode)
