"""The study, cell by cell. So far its quantization table: models x targets x fake or real x share of high precision."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from genaccel import console
from genaccel.evaluate.run import JudgeConfig
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.run import prepare, run
from genaccel.records import Record

# The study simulates A100 and Gaudi 2. Their formats can be stored and computed on any device, at that device's speed,
# but only the device's own target says something about its speed, so the others run fake here.
CELLS = (("cpu", "fake"), ("cpu", "real"), ("a100", "fake"), ("gaudi2", "fake"))


def quantization_study(models: Sequence[str], shares: Sequence[float], judge: JudgeConfig, runs: Path) -> list[Record]:
    """Run every cell and return the records, FP32 of each model first."""
    configs = [
        QuantizeConfig(model, target=target, mode=mode, share=share, runs=runs)  # type: ignore[arg-type]
        for model in models
        for target, mode in CELLS
        for share in shares
    ]
    records: dict[str, Record] = {}
    for number, config in enumerate(configs, 1):
        console.note(
            f"[{number}/{len(configs)}] {config.model}, {config.target}, {config.mode}, share {config.share:g}"
        )
        outcome = run(prepare(config, judge))
        records |= {r.id: r for r in (outcome.baseline, outcome.record) if r}
    return list(records.values())
