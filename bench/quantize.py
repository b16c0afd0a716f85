"""Time and memory of scoring, quantizing and running SmolLM2-135M, each beside a peer in the same run.

    python bench/quantize.py [--repeats 5]

Every measurement is a fresh process, so that its peak resident set (interpreter and libraries included) is its own.
Peers: a global quantile by sorting the concatenated weights; transformers loading and saving the model as it is;
torch's dynamic int8 quantization. Prints Markdown for bench/RESULTS.md.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

MODEL = "smollm2-135m"
FP32_BYTES = 538_060_032

# Timed inside the process as well: "inner" leaves out the interpreter's start and the imports.
OURS_SENSITIVITY = f"""
from genaccel import models
from genaccel.devices import get
from genaccel.quantize.sensitivity import measure_sensitivity
source = models.resolve("{MODEL}")
layout = models.layout_of(source)
begin()
measure_sensitivity(source, layout, models.open_weights(source, layout), "magnitude", get("cpu"))
"""
PEER_SENSITIVITY = f"""
import torch
from genaccel import models
source = models.resolve("{MODEL}")
begin()
loaded = models.load(source)
layers = [[loaded.model.get_submodule(w.name).weight for w in loaded.layout.weights if w.layer == i] for i in range(30)]
everything = torch.cat([w.detach().abs().flatten() for layer in layers for w in layer])
tau = everything.sort().values[int(0.3 * everything.numel())]
scores = [sum(int((w.abs() >= tau).sum()) for w in layer) / sum(w.numel() for w in layer) for layer in layers]
"""
OURS_QUANTIZE = f"""
import sys
from pathlib import Path
from genaccel.quantize.config import QuantizeConfig
from genaccel.quantize.run import prepare, run
from genaccel.evaluate.run import JudgeConfig
begin()
out = Path(sys.argv[1])
config = QuantizeConfig("{MODEL}", judge=False, embeddings="low", output=out / "model", runs=out / "runs")
run(prepare(config, JudgeConfig()))
"""
PEER_RESAVE = f"""
import sys, torch
from transformers import AutoModelForCausalLM
from genaccel import models
source = models.resolve("{MODEL}")
begin()
model = AutoModelForCausalLM.from_pretrained(source.folder, dtype=torch.float32)
model.save_pretrained(sys.argv[1] + "/model")
"""
PEER_DYNAMIC = f"""
import sys, torch
from transformers import AutoModelForCausalLM
from genaccel import models
source = models.resolve("{MODEL}")
begin()
model = AutoModelForCausalLM.from_pretrained(source.folder, dtype=torch.float32)
model = torch.ao.quantization.quantize_dynamic(model, {{torch.nn.Linear}}, dtype=torch.qint8)
torch.save(model.state_dict(), sys.argv[1] + "/model.pt")
"""
PREAMBLE = """
import time
_start = []
def begin():
    _start.append(time.perf_counter())
"""
EPILOGUE = """
import json, sys
print("@" + json.dumps(time.perf_counter() - _start[0]))
"""


def child(code: str) -> tuple[float, float, int]:
    """(wall seconds, seconds inside, peak resident bytes) of one fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(code) + EPILOGUE, folder],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"a measurement failed with exit code {process.returncode}:\n{code}")
    inner = float(json.loads(next(line[1:] for line in output.splitlines() if line.startswith("@"))))
    return wall, inner, usage.ru_maxrss * 1024


def compare(title: str, cases: dict[str, str], repeats: int) -> None:
    """Run the cases in turn, first one ours, and print medians with their range and the ratio to ours."""
    for code in cases.values():
        child(code)
    samples: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, code in cases.items():
            samples[name].append(child(code))
    print(f"\n### {title}\n")
    print("| | seconds | min - max | process, s | peak memory | of the fp32 weights | seconds against ours |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    ours = statistics.median(s[1] for s in samples[next(iter(cases))])
    for name, rows in samples.items():
        inner = [r[1] for r in rows]
        peak = statistics.median(r[2] for r in rows)
        print(
            f"| {name} | {statistics.median(inner):.2f} | {min(inner):.2f} - {max(inner):.2f} "
            f"| {statistics.median(r[0] for r in rows):.2f} | {peak / 1e6:.0f} MB | {peak / FP32_BYTES:.2f}x "
            f"| {statistics.median(inner) / ours:.2f}x |"
        )


def startup(repeats: int) -> None:
    """Wall time of 'genaccel --help' beside an empty Python and one that imports torch."""
    genaccel = str(Path(sys.executable).with_name("genaccel"))
    cases = {
        "genaccel --help": [genaccel, "--help"],
        "python -c pass": [sys.executable, "-c", "pass"],
        "python -c 'import torch'": [sys.executable, "-c", "import torch"],
    }
    print("\n### Start-up\n\n| command | median, s | min - max |\n|---|---:|---:|")
    for name, command in cases.items():
        seconds = []
        for _ in range(repeats + 1):
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            seconds.append(time.perf_counter() - start)
        seconds = seconds[1:]
        print(f"| {name} | {statistics.median(seconds):.3f} | {min(seconds):.3f} - {max(seconds):.3f} |")


def main() -> None:
    """Measure and print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    startup(repeats)
    compare(
        "Magnitude sensitivity",
        {"genaccel (radix selection, streamed)": OURS_SENSITIVITY, "sorting the concatenation": PEER_SENSITIVITY},
        repeats,
    )
    compare(
        "Quantize: load, score, plan, apply, save, load again",
        {
            "genaccel quantize (int8/bf16, real)": OURS_QUANTIZE,
            "transformers: load and save as it is": PEER_RESAVE,
            "torch quantize_dynamic (int8), saved": PEER_DYNAMIC,
        },
        repeats,
    )


if __name__ == "__main__":
    main()
