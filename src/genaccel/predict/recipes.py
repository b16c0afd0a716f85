"""What published training runs say of their recipe in a few words, read the same by the models of time and of memory."""

from __future__ import annotations

from collections.abc import Mapping

ADAPTERS = {
    "lora",
    "qlora",
    "ia3",
    "adalora",
    "ln_tuning",
    "vera",
    "llama_adapter",
    "dora",
    "prompt_tuning",
    "p_tuning",
}
LADDER = ("compile", "chunked", "activation ckpt", "optimizer in bwd", "act offload", "8bit")
"""The order in which torchtune's cumulative ablation adds techniques: a row has its own and all before it."""
OF_ADAPTERS = ("compile", "chunked", "activation ckpt", "act offload")
"""What of them have its last rows, which train adapters: an optimizer this small needs no help."""


def recipe_of(cells: Mapping[str, str]) -> str:
    """The notes of a row, with what a cumulative ablation had added before it."""
    notes = cells["notes"]
    if "ablation" not in notes or "baseline" in notes:
        return notes
    if cells.get("method", "") in ADAPTERS:
        earlier: tuple[str, ...] = OF_ADAPTERS
    else:
        earlier = LADDER[: next((i for i, rung in enumerate(LADDER) if rung in notes), 0)]
    return "; ".join((notes, *earlier))
