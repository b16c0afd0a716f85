"""What a fine-tuning run is told: the fields are the command line's options, their docstrings its help. No torch here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

from genaccel.errors import UserError


@dataclass(frozen=True)
class FinetuneConfig:
    """What to fine-tune on what.

    Parameters
    ----------
    model
        smollm2-135m, a Hugging Face folder, a hub id, or a .gguf file.
    dataset
        pydoc, a .json, .jsonl or .txt file (Alpaca, prompt/completion, chat messages or text), or a hub data set.
    data_dir
        Folder of evaluation data, for data sets that are named.
    length
        Longest sequence in tokens.
    too_long
        What happens to a record that is longer: error, truncate or drop; the first such is always named.
    packing
        Fill rows of --length tokens with several documents, which do not see each other; otherwise one a row, padded.
    holdout
        Records that are kept out of training; their loss is measured before and after.
    lora
        Train low-rank adapters instead of the weights.
    lora_rank
        Rank of the adapters.
    lora_alpha
        Scale of the adapters, divided by their rank.
    lora_targets
        Names of the linear layers that get adapters; all in the decoder layers by default.
    device
        Where to run: auto, cpu, cuda or hpu.
    output
        Write the trained model to this folder (with --lora the merged model, the adapter beside it in 'adapter').
    runs
        Folder for the record.
    cluster
        Describe the machine by a cluster of the catalogue instead of looking; only for 'genaccel check'.
    ask
        A prompt that is answered before and after training.
    """

    model: str
    _: KW_ONLY
    dataset: str = "pydoc"
    data_dir: Path | None = None
    length: int = 512
    too_long: Literal["error", "truncate", "drop"] = "truncate"
    packing: bool = True
    holdout: int = 0
    lora: bool = False
    lora_rank: int = 16
    lora_alpha: float = 32.0
    lora_targets: tuple[str, ...] = ()
    device: str = "auto"
    output: Path | None = None
    runs: Path = Path("runs")
    cluster: str | None = None
    ask: str | None = None

    def check(self) -> None:
        """Raise ``UserError`` for the first value that cannot work."""
        for name, value, least in (
            ("length", self.length, 2),
            ("holdout", self.holdout, 0),
            ("lora-rank", self.lora_rank, 1),
            ("lora-alpha", self.lora_alpha, 0),
        ):
            if not value >= least:
                raise UserError(f"--{name} is {value:g}, but it must be at least {least}.", "")
        if self.lora_targets and not self.lora:
            raise UserError("--lora-targets is only used with --lora.", "Add --lora.")
