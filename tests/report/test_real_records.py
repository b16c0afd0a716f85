"""From the commands of all four workloads to one report in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.report.browsing import PHONE, opened_at, quiet, resize

from genaccel.superres.synthetic import synthetic_dust

pytestmark = [pytest.mark.browser, pytest.mark.slow]

JUDGE = "--window 32 --limit 2 --prompt-tokens 4 --new-tokens 2 --repeats 2"
TUNE = "--length 64 --global-batch 4 --steps 4"
DUST = "--patch 16 --factor 2 --global-batch 4 --no-probe --steps 6"


def test_records_of_every_workload_make_one_report(run: Any, browser: Any, tiny_llama: Path, tmp_path: Path) -> None:
    text, instructions, maps = tmp_path / "text.txt", tmp_path / "data.json", tmp_path / "maps"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    instructions.write_text(json.dumps([{"instruction": f"Say {i}.", "output": f"{i} it is."} for i in range(60)]))
    maps.mkdir()
    for made in synthetic_dust(8, 32):
        np.save(maps / f"{made.name}.npy", made.values)
    for command in (
        ["quantize", tiny_llama, "--text", text, *JUDGE.split(), "--output", "small"],
        ["evaluate", "small", "--text", text, *JUDGE.split()],
        ["finetune", tiny_llama, "--dataset", instructions, *TUNE.split()],
        ["superres", "train", maps, *DUST.split(), "--output", "model"],
        ["superres", "evaluate", "--model", "model", "--data", maps, "--members", 2, "--steps", 2],
        ["report", "runs", "-o", "report.html"],
    ):
        code, _, err = run(*command)
        assert code == 0, err

    page = opened_at(browser, (tmp_path / "report.html").as_uri())
    quiet(page)
    headings = page.execute_script("return [...document.querySelectorAll('h2')].map(h => h.textContent.trim())")
    for workload in ("Quantization and evaluation", "Fine-tuning", "Super-resolution of dust maps"):
        assert workload in headings
    assert page.execute_script("return [...document.images].every(i => i.complete && i.naturalWidth > 0)")
    shown = page.execute_script("return document.querySelectorAll('#results tbody tr[data-model]').length")
    assert shown == 3  # FP32, quantized, and the checkpoint again
    resize(page, *PHONE)
    assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
