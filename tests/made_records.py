"""Records made by hand for the tests of the report: small numbers whose ratios can be done in the head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from genaccel.records import Environment, Figure, Kind, Record, Setting

PROTOCOL = "token perplexity, sometext, window 8"
ENVIRONMENT = Environment(
    device="cpu",
    accelerator="Some CPU",
    num_devices=1,
    num_threads=4,
    host_cpu="Some CPU x 4",
    python="3.11.0",
    platform="Linux",
    packages={"numpy": "2.0.0"},
    git_commit="abc123",
)
TEXT = {"name": "sometext", "source": "sometext.raw", "sha256": "a" * 64, "tokens": 24}


def number(name: str, value: float | None, unit: str = "1", kind: Kind = "measured", **more: Any) -> Figure:
    """A figure with a protocol of its own."""
    return Figure(name, value, unit, kind, more.pop("protocol", f"how {name} was taken"), **more)


def made(id: str, mode: str, *figures: Figure, **changes: Any) -> Record:
    """A record that was judged on ``TEXT``; ``changes`` replace fields."""
    record = Record(
        job="evaluate" if mode == "fp32" else "quantize",
        label=f"tiny {mode}",
        model="tiny",
        mode=mode,
        target="" if mode == "fp32" else "a100",
        config={"share": Setting(0.5, "flag"), "seed": Setting(0, "default")},
        environment=ENVIRONMENT,
        figures=figures,
        details={"model_fingerprint": "f00d", "text": dict(TEXT)},
        id=id,
        created="2026-01-01T00:00:00.000+00:00",
    )
    return replace(record, **changes)


def fp32(id: str = "base", perplexity: float | None = 20.0, **changes: Any) -> Record:
    """400 MB, perplexity 20, 100 and 10 tokens/s, peak memory unknown."""
    protocol = changes.pop("protocol", PROTOCOL)
    return made(
        id,
        "fp32",
        number("tensor_bytes", 400e6, "B"),
        number("perplexity", perplexity, protocol=protocol),
        number("prefill_tokens_per_second", 100.0, "tokens/s", samples=(90.0, 100.0, 110.0), spread=0.1),
        number("decode_tokens_per_second", 10.0, "tokens/s", spread=0.02),
        number("peak_memory_bytes", None, "B"),
        **changes,
    )


def fake(id: str = "fake", perplexity: float | None = 21.0, compression: float = 4.0, **changes: Any) -> Record:
    """A fake run: predicted 400 MB / compression, perplexity 21, a plan of two layers with their scores."""
    protocol = changes.pop("protocol", PROTOCOL)
    details = {
        "model_fingerprint": "f00d",
        "text": dict(TEXT),
        "sensitivity": {"metric": "magnitude", "settings": {"pruned_share": 0.3}, "scores": [0.5, 0.75]},
        "plan": {"method": "magnitude: 1 of 2 layers high", "formats": {"embed": "bf16", "layers.0": "int8"}},
        "layer_formats": [
            ["embed", "embedding", "bf16", "600"],
            ["layers.0.attn.q", "0", "int8", "100"],
            ["layers.0.mlp.up", "0", "int8", "100"],
            ["layers.1.attn.q", "1", "bf16", "100"],
            ["layers.1.mlp.up", "1", "bf16", "100"],
        ],
    } | changes.pop("details", {})
    return made(
        id,
        "fake",
        number("tensor_bytes", 400e6 / compression, "B", "predicted"),
        number("compression", compression, "x", "predicted"),
        number("perplexity", perplexity, protocol=protocol),
        number("prefill_tokens_per_second", 90.0, "tokens/s"),
        number("decode_tokens_per_second", 9.0, "tokens/s"),
        number("peak_memory_bytes", 2e9, "B"),
        details=details,
        **changes,
    )


def real(id: str = "real", **changes: Any) -> Record:
    """A real run: measured 200 MB, 2x, perplexity 20.5, with kernels and a warning."""
    kernels = {
        "int8 64x32": {
            "kernels": ["fast_few", "fast_many", "fast_many"],
            "microseconds": {"fast_few": [1.5, 30.0, 400.0], "fast_many": [2.5, 20.0, 1200.25]},
            "left_out": {"broken": "wrong on extreme values"},
            "origin": "timed for 1, 16 and 256 rows",
        }
    }
    return made(
        id,
        "real",
        number("tensor_bytes", 200e6, "B"),
        number("compression", 2.0, "x"),
        number("perplexity", 20.5, protocol=PROTOCOL),
        **{
            "target": "cpu",
            "details": {"model_fingerprint": "f00d", "text": dict(TEXT), "kernels": kernels},
            "warnings": ("the machine was not quiet",),
        }
        | changes,
    )


def tuned(id: str = "tuned", strategy: str = "ddp", speed: float = 100.0, **changes: Any) -> Record:
    """A fine-tuning run of two processes: five steps at ``speed`` tokens/s or nearly so."""
    protocol = "median of tokens without padding, all 2 processes together; 5 steps after 2 of warm-up, slowest process of each step"
    samples = tuple(speed * share for share in (0.98, 0.99, 1.0, 1.01, 1.02))
    config = {"strategy": strategy, "attention": "math", "precision": "fp32", "global_batch": 8, "micro_batch": None}
    fields: dict[str, Any] = {
        "job": "finetune",
        "label": f"tiny {strategy} x2",
        "target": "cpu",
        "config": {name: Setting(value, "flag") for name, value in config.items()},
        "environment": replace(ENVIRONMENT, num_devices=2),
        "details": {
            "model_fingerprint": "f00d",
            "curves": {"step": [1, 2, 3], "loss": [3.0, 2.0, 1.5], "tokens": [100, 100, 100]},
            "answers": {"prompt": "Who?", "before": "Me.", "after": "You."},
        },
        "data": {"alpaca.json": "c" * 64},
    }
    figures = (
        number("train_tokens_per_second", speed, "tokens/s", protocol=protocol, samples=samples, spread=0.02),
        *(number(f"{phase}_seconds", 0.5, "s") for phase in ("forward", "backward", "waiting", "optimizer")),
        number("last_loss", 1.5, "nats"),
    )
    return made(id, "full", *figures, **fields | changes)


def png(size: int = 8) -> str:
    """A small picture in base64."""
    import base64
    import io

    from PIL import Image

    buffer = io.BytesIO()
    Image.new("P", (size, size), 3).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def dust(id: str = "dust", **changes: Any) -> Record:
    """A judged super-resolver: bicubic, regression and diffusion, spectra and seven pictures of a map."""
    figures = [
        number(f"{method}_{name}", value, "dB" if name == "psnr" else "", samples=(value, value), protocol=f"{method}, mean over 2 maps, x4")
        for method, values in (("bicubic", (30.0, 0.2, 0.1)), ("regression", (32.0, 0.1, 0.5)), ("diffusion", (31.0, 0.05, 0.9)))
        for name, value in zip(("psnr", "crps", "power_high_k"), values, strict=True)
    ]  # fmt: skip
    titles = ("input", "bicubic", "regression", "a member", "mean", "uncertainty", "truth")
    fields: dict[str, Any] = {
        "job": "superres",
        "label": "edm tiny x4, judged",
        "model": "superres-tiny",
        "target": "cpu",
        "config": {"model": Setting("m", "flag"), "members": Setting(8, "default"), "steps": Setting(10, "default")},
        "details": {
            "spectra": {"k": [0.1, 0.2, 0.4], "bicubic": [1.0, 0.1, 0.01], "regression": [1.0, 0.5, 0.1], "a member": [1.0, 1.1, 0.9]},
            "pictures": [{"map": "sky0", "pictures": dict.fromkeys(titles, png())}],
        },
        "data": {"builtin": "d" * 64},
    }  # fmt: skip
    return made(id, "edm", *figures, **fields | changes)
