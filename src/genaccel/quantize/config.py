"""What a quantization run is told: the fields are the command line's options, their docstrings its help. No torch here."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class QuantizeConfig:
    """What to quantize and how.

    Parameters
    ----------
    model
        smollm2-135m, smollm2-135m-degridded, a Hugging Face folder, a hub id, or a .gguf file.
    target
        Accelerator whose pair of precisions is used: cpu bf16/int8, a100 fp16/int8, gaudi2 bf16/fp8_e4m3.
    mode
        fake: rounded values, arithmetic in fp32; real: weights stored in the format and a kernel for it.
    metric
        Sensitivity metric: magnitude (the study's) or pruned_loss (CPTQuant's).
    pruned_share
        Share of weights below the sensitivity threshold.
    split
        How many layers keep the higher precision: by share, by two-means, or by compression.
    share
        Share of layers in the higher precision, with --split share.
    compression
        Compression against FP32 to reach, on real bytes, with --split compression.
    embeddings
        Format of the embedding and an untied head: high, low, keep (fp32), or a format's name.
    sensitivity
        Use this sensitivity report instead of measuring.
    plan
        Use this precision plan instead of making one.
    calibration
        Text for metrics that look at data: pydoc, wikitext2, or the path of a text file.
    device
        Where to run: auto, cpu, cuda or hpu.
    output
        Write the quantized model to this folder.
    runs
        Folder for the record.
    baseline
        Also judge the model in FP32, unless the folder of records has that already.
    judge
        Judge the quantized model; --no-judge only quantizes.
    seed
        Seed of every random number.
    """

    model: str
    _: KW_ONLY
    target: str = "cpu"
    mode: Literal["fake", "real"] = "real"
    metric: str = "magnitude"
    pruned_share: float = 0.30
    split: Literal["share", "two-means", "compression"] = "share"
    share: float = 0.5
    compression: float | None = None
    embeddings: str = "high"
    sensitivity: Path | None = None
    plan: Path | None = None
    calibration: str = "pydoc"
    device: str = "auto"
    output: Path | None = None
    runs: Path = Path("runs")
    baseline: bool = True
    judge: bool = True
    seed: int = 0
