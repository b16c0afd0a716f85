"""The study, cell by cell. So far its quantization table: models x targets x fake or real x share of high precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from genaccel import console
from genaccel.corpora import data_folder
from genaccel.evaluate.run import JudgeConfig
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.run import prepare, run
from genaccel.records import Record

TARGETS = ("cpu", "a100", "gaudi2")


def judges_of(judge: JudgeConfig) -> list[JudgeConfig]:
    """``judge``, and WikiText-2 beside the built-in text where a data folder is given; speed is measured once."""
    if judge.text == "pydoc" and data_folder(judge.data_dir) is not None:
        return [judge, replace(judge, text="wikitext2", speed=False)]
    return [judge]


def quantization_study(
    models: Sequence[str], shares: Sequence[float], real_targets: Sequence[str], judge: JudgeConfig, runs: Path
) -> list[Record]:
    """Run every cell and return the records, FP32 of each model first.

    Every target runs fake, as the study simulates it; ``real_targets`` are also stored and computed in their formats, on
    this machine's device, whose speed says nothing about another target's.
    """
    configs = [
        QuantizeConfig(model, target=target, mode=mode, share=share, runs=runs)
        for model in models
        for target in TARGETS
        for mode in (("fake", "real") if target in real_targets else ("fake",))
        for share in shares
    ]
    cells = [(config, one) for config in configs for one in judges_of(judge)]
    records: dict[str, Record] = {}
    for number, (config, one) in enumerate(cells, 1):
        what = f"{config.model}, {config.target}, {config.mode}, share {config.share:g}, {one.text}"
        console.note(f"[{number}/{len(cells)}] {what}")
        outcome = run(prepare(config, one))
        records |= {r.id: r for r in (outcome.baseline, outcome.record) if r}
    return list(records.values())
