"""The study, cell by cell: its quantization table (models x targets x fake or real x share of high precision), and its
super-resolution of dust maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from genaccel import console, devices
from genaccel.corpora import data_folder
from genaccel.evaluate.run import JudgeConfig
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.run import Prepared, prepare, run
from genaccel.records import Environment, Record, settings_of
from genaccel.store import read_records
from genaccel.superres import files
from genaccel.superres.config import DustTrainConfig, JudgeMapsConfig, SuperresConfig
from genaccel.superres.run import prepare as prepare_dust
from genaccel.superres.run import run as train_dust

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


def dust_study(minutes: float, runs: Path) -> list[Record]:
    """Train a tiny super-resolver on the built-in sky for some minutes, and judge it on areas that it has not seen.

    Returns the records of both; what ``runs`` has already, from the same machine and code, is not run again.
    """
    model, pictures = runs / "superres-model", runs / "super-resolved"
    config = SuperresConfig(minutes=minutes, output=model, runs=runs)
    judge = JudgeMapsConfig(model=model, members=4, limit=3, output=pictures, runs=runs)
    train = DustTrainConfig()
    prepared = prepare_dust(config, train)
    done = _recorded_dust(devices.environment(prepared.device), runs, (config, train), (judge,))
    console.note(f"Super-resolution of dust, {minutes:g} minutes" + (f": record {done[-1].id}" if done else ""))
    if done:
        return done
    trained = train_dust(prepared, None, None, settings_of(config, train))
    judged, _ = files.judge_files(judge, settings_of(judge))
    return [r for r in (trained.record, judged) if r is not None]


def _recorded_dust(here: Environment, runs: Path, *told: tuple[Any, ...]) -> list[Record]:
    """The last record of each of ``told``, or nothing unless all are there."""
    if not runs.is_dir():
        return []
    alike = [r for r in read_records(runs)[0] if r.job == "superres" and r.environment == here]
    found = []
    for configs in told:
        wanted = {name: s.value for name, s in settings_of(*configs).items()}
        found += [r for r in alike if {k: s.value for k, s in r.config.items()} == wanted][-1:]
    return found if len(found) == len(told) else []
