"""One quantization run from a model's name to a record: check, score, plan, apply, judge."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genaccel import console, devices, models
from genaccel.devices import Device
from genaccel.errors import UserError, unknown
from genaccel.evaluate.paired import paired_figures
from genaccel.evaluate.run import JudgeConfig, Judgement, judge
from genaccel.hardware import Accelerator, find_target
from genaccel.models import LoadedModel, ModelSource
from genaccel.plans import ModelLayout, PrecisionPlan, SensitivityReport, find_format, load_plan, load_sensitivity
from genaccel.quantize import checkpoint
from genaccel.quantize.baseline import fp32_baseline, resume_of
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.planner import Allocation, make_plan
from genaccel.quantize.sensitivity import METRICS, SensitivitySettings, measure_sensitivity
from genaccel.records import Figure, Kind, Record, Setting, data_hashes, settings_of
from genaccel.store import check_output_folder, check_writable, whole_folder, write_record, write_text
from genaccel.weights import Weights


@dataclass(frozen=True)
class Prepared:
    """A run whose every name, file and number was checked; nothing slow has happened yet."""

    config: QuantizeConfig
    judge_config: JudgeConfig
    target: Accelerator
    device: Device
    source: ModelSource
    layout: ModelLayout
    plan: PrecisionPlan | None
    sensitivity: SensitivityReport | None


def prepare(config: QuantizeConfig, judge_config: JudgeConfig) -> Prepared:
    """Check everything that can be checked before anything slow begins; the first problem is a ``UserError``."""
    target = find_target(config.target)
    if config.metric not in METRICS:
        raise unknown("sensitivity metric", config.metric, METRICS)
    if config.embeddings not in ("high", "low", "keep"):
        find_format(config.embeddings)
    if config.mode not in ("fake", "real"):
        raise unknown("mode", config.mode, ("fake", "real"))
    if not 0 < config.pruned_share < 1:
        raise UserError(
            f"The pruned share is {config.pruned_share:g}, but it must lie between 0 and 1.", "The study prunes 0.30."
        )
    if not 0 <= config.share <= 1:
        raise UserError(
            f"The share of high-precision layers is {config.share:g}, but it must lie in 0..1.", "The default is 0.5."
        )
    if config.compression is not None and config.split != "compression":
        raise UserError("--compression is only used with --split compression.", "Add --split compression.")
    device = devices.get(_device_name(config, target))
    check_writable(config.runs)
    if config.output is not None:
        check_output_folder(config.output)
    source = models.resolve(config.model)
    layout = models.layout_of(source)
    if config.judge:
        judge_config.check(layout.max_positions)
    plan = load_plan(config.plan) if config.plan else None
    if plan is not None:
        layout.resolve(plan.formats)
        if plan.model != source.name:
            console.warn(f"the plan was made for {plan.model} and is applied to {source.name}")
    sensitivity = load_sensitivity(config.sensitivity) if config.sensitivity else None
    return Prepared(config, judge_config, target, device, source, layout, plan, sensitivity)


def _device_name(config: QuantizeConfig, target: Accelerator) -> str:
    """'auto' is the target's own runtime where it is there, else the CPU."""
    if config.device != "auto":
        return config.device
    own = next(d for d in devices.every() if target.runtime == d.NAME)
    return target.runtime if own.unavailable_reason() is None else "cpu"


@dataclass(frozen=True)
class Outcome:
    """What a run leaves: its record and where that lies, and the baseline's record where there is one."""

    record: Record
    path: Path
    baseline: Record | None


def run(prepared: Prepared, settings: dict[str, Setting] | None = None) -> Outcome:
    """Quantize, judge and record. ``settings`` are the resolved values with their origins."""
    config, device, layout = prepared.config, prepared.device, prepared.layout
    settings = settings if settings is not None else settings_of(config, prepared.judge_config)
    device.seed(config.seed)
    environment = devices.environment(device)
    fingerprint = prepared.source.fingerprint()
    judged_before = config.judge and config.baseline
    baseline = (
        fp32_baseline(prepared.source, prepared.judge_config, device, config.runs, fingerprint)
        if judged_before
        else None
    )

    seconds: dict[str, float] = {}
    weights = models.open_weights(prepared.source, layout)
    sensitivity, plan = prepared.sensitivity, prepared.plan
    if plan is None:
        start = time.perf_counter()
        sensitivity = sensitivity or measured_sensitivity(prepared, weights)
        seconds["sensitivity_seconds"] = time.perf_counter() - start
        plan = planned(prepared, sensitivity)
    formats = layout.resolve(plan.formats)
    console.note(f"{prepared.source.name} for {plan.target} ({config.mode}, on {device.NAME}): {plan.method}")

    start = time.perf_counter()
    loaded, kernels, artefacts = _apply(prepared, weights, plan)
    seconds["quantize_seconds"] = time.perf_counter() - start
    judgement = _judged(prepared, loaded, plan, kernels, fingerprint, baseline) if config.judge else Judgement()

    record = Record(
        job="quantize",
        label=f"{prepared.source.name} {plan.target} {config.mode}",
        model=prepared.source.name,
        mode=config.mode,
        target=plan.target,
        config=settings,
        environment=environment,
        figures=(*_size_figures(prepared, formats, loaded, config.mode), *_seconds(seconds), *judgement.figures),
        data=data_hashes(judgement.details),
        details={
            "model_fingerprint": fingerprint,
            "sensitivity": _sensitivity_details(sensitivity),
            "plan": {"method": plan.method, "formats": plan.formats},
            "layer_formats": _layer_formats(layout, formats),
            "kernels": kernels,
            **judgement.details,
        },
        artefacts=artefacts,
        warnings=judgement.warnings,
    )
    path = write_record(record, config.runs)
    judgement.finish()
    if config.output is not None:
        write_text(config.output / "record.json", path.read_text(encoding="utf-8"))
    return Outcome(record, path, baseline)


def _judged(
    prepared: Prepared,
    loaded: LoadedModel,
    plan: PrecisionPlan,
    kernels: dict[str, Any],
    fingerprint: str,
    baseline: Record | None,
) -> Judgement:
    """The quantized model's judgement; an interrupted one goes on, and tasks are paired with FP32's answers."""
    config, device = prepared.config, prepared.device
    chosen = {key: list(value["kernels"]) for key, value in kernels.items()}
    quantized = f"{fingerprint} {config.mode} {plan.to_toml()}"
    resume = resume_of(config.runs, devices.environment(device), quantized, chosen)
    judgement = judge(loaded, prepared.judge_config, device, resume=resume)
    if baseline is None:
        return judgement
    figures, unpaired = paired_figures(judgement.details, baseline)
    return judgement + Judgement(figures, {"baseline": baseline.id}, unpaired)


def measured_sensitivity(prepared: Prepared, weights: Weights) -> SensitivityReport:
    """Phase 1 with the run's metric."""
    config = prepared.config
    used = SensitivitySettings(config.pruned_share, config.calibration, prepared.judge_config.data_dir)
    with console.status(f"Sensitivity of {prepared.source.name} ({config.metric})"):
        return measure_sensitivity(prepared.source, prepared.layout, weights, config.metric, prepared.device, used)


def planned(prepared: Prepared, sensitivity: SensitivityReport) -> PrecisionPlan:
    """Phase 2 with the run's split."""
    config = prepared.config
    allocation = Allocation(config.split, config.share, config.compression, config.embeddings)
    return make_plan(sensitivity, prepared.layout, prepared.target, allocation)


def _apply(
    prepared: Prepared, weights: Weights, plan: PrecisionPlan
) -> tuple[LoadedModel, dict[str, Any], dict[str, str]]:
    """The quantized model: through a checkpoint when one is asked for, so that what is judged is what was saved."""
    config, device = prepared.config, prepared.device
    if config.output is None:
        loaded = models.load(prepared.source)
        loaded.model.to(device.torch_device())
        with console.status("Quantizing in memory"):
            return loaded, checkpoint.quantize_in_memory(loaded, plan, config.mode, device), {}
    with (
        console.progress(f"Writing {config.output}", len(prepared.layout.stored)) as advance,
        whole_folder(config.output) as folder,
    ):
        checkpoint.write_checkpoint(folder, prepared.source, prepared.layout, weights, plan, config.mode, advance)
    loaded, kernels = checkpoint.load_checkpoint(config.output, device)
    if kernels:
        info = checkpoint.read_info(config.output)
        chosen = {key: tuple(value["kernels"]) for key, value in kernels.items()}
        machine = checkpoint.kernels_machine(device)
        checkpoint.write_info(config.output, replace(info, kernels=chosen, kernels_machine=machine))
    return loaded, kernels, {"checkpoint": str(config.output)}


def _size_figures(prepared: Prepared, formats: dict[str, Any], loaded: LoadedModel, mode: str) -> list[Figure]:
    fp32 = prepared.layout.fp32_bytes
    kind: Kind = "predicted"
    size, how = prepared.layout.num_bytes(formats), "exact size of the plan's formats; fake mode stores fp32"
    if mode == "real":
        # Counted anew from the tensors: a format that silently stayed wider would show here.
        held = checkpoint.held_bytes(loaded.model)
        assert held == size, f"the model holds {held} bytes, its plan says {size}"
        kind, how = "measured", "tensors as stored, scales and minima included, tied ones once"
    figures = [
        Figure("tensor_bytes", size, "B", kind, how),
        Figure("compression", fp32 / size, "x", kind, "bytes of the same tensors in fp32 over " + how),
    ]
    output = prepared.config.output
    if output is not None:
        on_disk = sum(f.stat().st_size for f in output.glob("*.safetensors"))
        figures.append(Figure("file_bytes", on_disk, "B", "measured", "safetensors files on disk"))
    return figures


def _seconds(seconds: dict[str, float]) -> list[Figure]:
    return [Figure(name, value, "s", "measured", "wall clock, once") for name, value in seconds.items()]


def _sensitivity_details(report: SensitivityReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {"metric": report.metric, "settings": report.settings, "scores": [s.score for s in report.scores]}


def _layer_formats(layout: ModelLayout, formats: dict[str, Any]) -> list[list[str]]:
    """[weight, layer or role, format, elements] of every stored weight, for the plan's picture."""
    return [
        [w.name, w.role if w.layer is None else str(w.layer), formats[w.name].name, str(w.num_elements)]
        for w in layout.stored
    ]


def prepare_unjudged(config: QuantizeConfig) -> Prepared:
    """Check a run that stops before judging."""
    return prepare(replace(config, judge=False), JudgeConfig())
