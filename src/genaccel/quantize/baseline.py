"""Models judged as they are: FP32 beside a quantized one, or any model or checkpoint on its own."""

from __future__ import annotations

from pathlib import Path

from genaccel import console, devices, models
from genaccel.devices import Device
from genaccel.evaluate.run import JudgeConfig, judge
from genaccel.models import LoadedModel, ModelSource
from genaccel.quantize import checkpoint
from genaccel.records import Figure, Record, Setting, settings_of
from genaccel.store import read_records, write_record


def fp32_baseline(
    source: ModelSource, judge_config: JudgeConfig, device: Device, runs: Path, fingerprint: str
) -> Record:
    """The FP32 model's record: from the folder of records when the same was judged there alike, else measured now."""
    environment = devices.environment(device)
    wanted = {k: v.value for k, v in settings_of(judge_config).items() if k != "data_dir"}
    if runs.is_dir():
        for record in reversed(read_records(runs)[0]):
            same = record.details.get("model_fingerprint") == fingerprint and record.environment == environment
            had = {k: record.config[k].value for k in wanted if k in record.config}
            if record.mode == "fp32" and same and had == wanted:
                console.note(f"FP32 was judged before: record {record.id}")
                return record
    loaded = models.load(source)
    loaded.model.to(device.torch_device())
    record = fp32_record(loaded, judge_config, device, settings_of(judge_config), fingerprint)
    write_record(record, runs)
    return record


def fp32_record(
    loaded: LoadedModel, judge_config: JudgeConfig, device: Device, settings: dict[str, Setting], fingerprint: str
) -> Record:
    """Judge an unquantized model and describe it as a record."""
    judgement = judge(loaded, judge_config, device)
    size = loaded.layout.fp32_bytes
    return Record(
        job="evaluate",
        label=f"{loaded.name} fp32",
        model=loaded.name,
        mode="fp32",
        target="",
        config=settings,
        environment=devices.environment(device),
        figures=(
            Figure("tensor_bytes", size, "B", "measured", "all tensors in fp32, tied ones once"),
            *judgement.figures,
        ),
        details={"model_fingerprint": fingerprint, **judgement.details},
        warnings=judgement.warnings,
    )


def prepare_evaluation(model: str, judge_config: JudgeConfig, device: str) -> Device:
    """Check an evaluation before anything slow begins; returns the device it will run on."""
    place = devices.get(device)
    folder = Path(model) if checkpoint.is_checkpoint(model) else models.resolve(model).folder
    judge_config.check(models.layout_of(ModelSource(model, folder)).max_positions)
    return place


def evaluate_model(
    model: str, judge_config: JudgeConfig, device: str, runs: Path, settings: dict[str, Setting] | None = None
) -> tuple[Record, Path]:
    """Judge a checkpoint of ours or any model, and store the record."""
    place = prepare_evaluation(model, judge_config, device)
    settings = settings if settings is not None else settings_of(judge_config)
    place.seed(0)
    if not checkpoint.is_checkpoint(model):
        source = models.resolve(model)
        loaded, _ = checkpoint.load_any(model, place)
        record = fp32_record(loaded, judge_config, place, settings, source.fingerprint())
        return record, write_record(record, runs)
    info = checkpoint.read_info(Path(model))
    loaded, kernels = checkpoint.load_any(model, place)
    judgement = judge(loaded, judge_config, place)
    sizes = (
        Figure(
            "tensor_bytes",
            info.tensor_bytes,
            "B",
            "measured",
            "tensors as stored, scales and minima included, tied ones once",
        ),
        Figure(
            "compression",
            info.fp32_bytes / info.tensor_bytes,
            "x",
            "measured",
            "bytes of the same tensors in fp32 over those stored",
        ),
    )
    record = Record(
        job="evaluate",
        label=f"{info.model} {info.target} {info.mode}",
        model=info.model,
        mode=info.mode,
        target=info.target,
        config=settings,
        environment=devices.environment(place),
        figures=(*sizes, *judgement.figures),
        details={"checkpoint": model, "kernels": kernels, **judgement.details},
        warnings=judgement.warnings,
    )
    return record, write_record(record, runs)
