"""Models judged as they are: FP32 beside a quantized one, or any model or checkpoint on its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genaccel import console, devices, models
from genaccel.devices import Device
from genaccel.errors import UserError
from genaccel.evaluate.config import FEWSHOT_SEED
from genaccel.evaluate.paired import check_alike, data_of, example_lines, load_baseline, paired_figures
from genaccel.evaluate.run import EvaluateConfig, JudgeConfig, Judgement, Resume, judge
from genaccel.models import LoadedModel, ModelSource
from genaccel.quantize import checkpoint
from genaccel.records import Environment, Figure, Record, Setting, data_hashes, settings_of
from genaccel.store import check_writable, read_records, write_record, write_text


def fp32_baseline(
    source: ModelSource, judge_config: JudgeConfig, device: Device, runs: Path, fingerprint: str
) -> Record:
    """The FP32 model's record: from the folder of records when the same was judged there alike, else measured now."""
    environment = devices.environment(device)
    data = judge_config.data(FEWSHOT_SEED)
    wanted = {k: v.value for k, v in settings_of(judge_config).items() if k != "data_dir"}
    if runs.is_dir():
        for record in reversed(read_records(runs)[0]):
            same = record.details.get("model_fingerprint") == fingerprint and record.environment == environment
            had = {k: record.config[k].value for k in wanted if k in record.config}
            if record.mode == "fp32" and same and had == wanted and data_of(record.details) == data:
                console.note(f"FP32 was judged before: record {record.id}")
                return record
    loaded = models.load(source)
    loaded.model.to(device.torch_device())
    judgement = judge(loaded, judge_config, device, resume=resume_of(runs, environment, fingerprint))
    record = _fp32_record(loaded, judgement, environment, settings_of(judge_config), fingerprint)
    write_record(record, runs)
    judgement.finish()
    return record


def resume_of(runs: Path, environment: Environment, model: str, kernels: Any = None) -> Resume:
    """Where an interrupted evaluation goes on: ``model`` and ``kernels`` tell apart whatever computes differently."""
    software = {name: environment.packages.get(name, "") for name in ("genaccel", "torch", "transformers")}
    identity = {
        "model": model,
        "kernels": kernels,
        "device": environment.device,
        "accelerator": environment.accelerator,
    }
    return Resume(runs, identity | software)


def _fp32_record(
    loaded: LoadedModel, judgement: Judgement, environment: Environment, settings: dict[str, Setting], fingerprint: str
) -> Record:
    size = loaded.layout.fp32_bytes
    return Record(
        job="evaluate",
        label=f"{loaded.name} fp32",
        model=loaded.name,
        mode="fp32",
        target="",
        config=settings,
        environment=environment,
        figures=(
            Figure("tensor_bytes", size, "B", "measured", "all tensors in fp32, tied ones once"),
            *judgement.figures,
        ),
        data=data_hashes(judgement.details),
        details={"model_fingerprint": fingerprint, **judgement.details},
        warnings=judgement.warnings,
    )


@dataclass(frozen=True)
class PreparedEvaluation:
    """An evaluation whose every name, file and number was checked; nothing slow has happened yet."""

    config: EvaluateConfig
    judge_config: JudgeConfig
    device: Device
    source: ModelSource
    baseline: Record | None


def prepare_evaluation(config: EvaluateConfig, judge_config: JudgeConfig) -> PreparedEvaluation:
    """Check everything that can be checked before anything slow begins; the first problem is a ``UserError``."""
    device = devices.get(config.device)
    check_writable(config.runs)
    if config.output is not None:
        if config.output.is_dir():
            raise UserError(f"The output {config.output} is a folder.", "Give the name of a file to write.")
        check_writable(config.output.parent)
    ours = checkpoint.is_checkpoint(config.model)
    source = checkpoint.source_of(Path(config.model)) if ours else models.resolve(config.model)
    judge_config.check(models.layout_of(source).max_positions, config.seed)
    baseline = load_baseline(config.baseline) if config.baseline else None
    if baseline is not None:
        check_alike(baseline, judge_config, config.seed)
    return PreparedEvaluation(config, judge_config, device, source, baseline)


def evaluate_model(prepared: PreparedEvaluation, settings: dict[str, Setting] | None = None) -> tuple[Record, Path]:
    """Judge a checkpoint of ours or any model, and store the record. ``settings`` are the values with their origins."""
    config, device = prepared.config, prepared.device
    settings = settings if settings is not None else settings_of(config, prepared.judge_config)
    device.seed(config.seed)
    environment = devices.environment(device)
    fingerprint = prepared.source.fingerprint()
    loaded, kernels = checkpoint.load_any(config.model, device)
    chosen = {key: list(value["kernels"]) for key, value in kernels.items()}
    resume = resume_of(config.runs, environment, fingerprint, chosen)
    judgement = judge(loaded, prepared.judge_config, device, seed=config.seed, resume=resume)
    if prepared.baseline is not None:
        figures, unpaired = paired_figures(judgement.details, prepared.baseline)
        judgement += Judgement(figures, {"baseline": prepared.baseline.id}, unpaired)
    if checkpoint.is_checkpoint(config.model):
        record = _checkpoint_record(config.model, judgement, environment, settings, kernels)
    else:
        record = _fp32_record(loaded, judgement, environment, settings, fingerprint)
    if config.output is not None:
        write_text(config.output, example_lines(judgement.examples))
        record = replace(record, artefacts={"examples": str(config.output)})
    path = write_record(record, config.runs)
    judgement.finish()
    return record, path


def _checkpoint_record(
    folder: str, judgement: Judgement, environment: Environment, settings: dict[str, Setting], kernels: dict[str, Any]
) -> Record:
    info = checkpoint.read_info(Path(folder))
    stored = "tensors as stored, scales and minima included, tied ones once"
    compression = info.fp32_bytes / info.tensor_bytes
    sizes = (
        Figure("tensor_bytes", info.tensor_bytes, "B", "measured", stored),
        Figure("compression", compression, "x", "measured", "bytes of the same tensors in fp32 over those stored"),
    )
    return Record(
        job="evaluate",
        label=f"{info.model} {info.target} {info.mode}",
        model=info.model,
        mode=info.mode,
        target=info.target,
        config=settings,
        environment=environment,
        figures=(*sizes, *judgement.figures),
        data=data_hashes(judgement.details),
        details={"checkpoint": folder, "kernels": kernels, **judgement.details},
        warnings=judgement.warnings,
    )
