"""The study, cell by cell. So far its quantization table: models x targets x fake or real x share of high precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from genaccel import console, devices
from genaccel.corpora import data_folder
from genaccel.evaluate.run import JudgeConfig
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.run import Prepared, prepare, run
from genaccel.records import Record, settings_of
from genaccel.store import read_records

TARGETS = ("cpu", "a100", "gaudi2")


def judges_of(judge: JudgeConfig) -> list[JudgeConfig]:
    """``judge``; unless it names a text or tasks, the built-in text and, where a data folder is given, WikiText-2.

    Speed is measured once, beside the built-in text.
    """
    if judge.text is not None or judge.tasks:
        return [judge]
    judges = [replace(judge, text="pydoc")]
    if data_folder(judge.data_dir) is not None:
        judges.append(replace(judge, text="wikitext2", speed=False))
    return judges


def recorded(prepared: Prepared) -> list[Record]:
    """The FP32 record and the record of this very run from its folder of records, or nothing."""
    config = prepared.config
    if not config.runs.is_dir():
        return []
    wanted = {name: s.value for name, s in settings_of(config, prepared.judge_config).items()}
    here = devices.environment(prepared.device)
    alike = [r for r in read_records(config.runs)[0] if r.model == config.model and r.environment == here]
    same = [r for r in alike if r.job == "quantize" and {k: s.value for k, s in r.config.items()} == wanted]
    judged = {k: s.value for k, s in settings_of(prepared.judge_config).items()}
    fp32 = [r for r in alike if r.mode == "fp32" and {k: r.config[k].value for k in judged if k in r.config} == judged]
    return [fp32[-1], same[-1]] if fp32 and same else []


def quantization_study(
    models: Sequence[str], shares: Sequence[float], real_targets: Sequence[str], judge: JudgeConfig, runs: Path
) -> list[Record]:
    """Run every cell and return the records, FP32 of each model first.

    Every target runs fake, as the study simulates it; ``real_targets`` are also stored and computed in their formats, on
    this machine's device, whose speed says nothing about another target's. A cell that ``runs`` holds a record of, from
    the same machine and code, is not run again: an interrupted study goes on.
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
        what = f"{config.model}, {config.target}, {config.mode}, share {config.share:g}, {one.text or one.tasks}"
        prepared = prepare(config, one)
        done = recorded(prepared)
        console.note(f"[{number}/{len(cells)}] {what}" + (f": record {done[-1].id}" if done else ""))
        if not done:
            outcome = run(prepared)
            done = [r for r in (outcome.baseline, outcome.record) if r]
        records |= {r.id: r for r in done}
    return list(records.values())
