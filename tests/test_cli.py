"""The command line from outside: what each mistake prints, exit codes, configuration and its origins, interruption."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.fixture
def text_file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    return path


SMALL = ("--window", "32", "--no-speed")  # within the tiny models' context


def quick(text_file) -> list[str]:
    """Options that judge a tiny model in a moment."""
    options = "--window 32 --limit 2 --prompt-tokens 4 --new-tokens 2 --repeats 2"
    return ["--text", str(text_file), *options.split()]


# --- Bad input: one sentence, one hint, exit code 2 -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence", "hint"),
    [
        (["quantize", "smollm2-135n"], "no model 'smollm2-135n'", "smollm2-135m"),
        (["quantize", "MODEL", "--target", "a10"], "no target 'a10'", "a100"),
        (["quantize", "MODEL", *SMALL, "--text", "pydocs"], "no text 'pydocs'", "pydoc"),
        (["quantize", "MODEL", "--embeddings", "fp17"], "no format 'fp17'", "fp16"),
        (["quantize", "MODEL", "--metric", "magnitud"], "no sensitivity metric 'magnitud'", "magnitude"),
        (["quantize", "MODEL", "--shar", "0.4"], "Unknown option: --shar", "Did you mean --share"),
        (["quantize", "MODEL", "--mode", "reel"], "reel", "--help"),
        (["quantize", "MODEL", "--share", "much"], "much", "--help"),
        (["quantize", "MODEL", "--share", "1.5"], "1.5", "0.5"),
        (["quantize", "MODEL", "--pruned-share", "0"], "pruned share is 0", "0.30"),
        (["quantize", "MODEL", "--window", "1"], "window of 1 tokens", "1024"),
        (["quantize", "MODEL", "--window", "999999"], "longer than the model's context", "--window"),
        (["quantize", "MODEL", *SMALL, "--stride", "33"], "stride is 33", "window"),
        (["quantize", "MODEL", *SMALL, "--limit", "0"], "limit is 0", "whole text"),
        (["quantize", "MODEL", "--compression", "3"], "--split compression", "--split compression"),
        (["quantize", "MODEL", "--device", "tpu"], "no device 'tpu'", "cpu"),
        (["quantize", "MODEL", *SMALL, "--plan", "nowhere.toml"], "nowhere.toml cannot be read", "path"),
        (
            ["quantize", "MODEL", *SMALL, "--sensitivity", "nowhere.json"],
            "nowhere.json cannot be read",
            "path",
        ),
        (["quantize", "MODEL", "--config", "nowhere.toml"], "no run file nowhere.toml", "--config"),
        (["quantise", "MODEL"], 'Did you mean "quantize"', "--help"),
        (["evaluate", "nowhere"], "no model 'nowhere'", "smollm2-135m"),
        (["report", "nowhere"], "no folder nowhere", "genaccel quantize"),
        (["list", "format"], "nothing called 'format'", "formats"),
        (["check", "report"], "not 'report'", "genaccel check quantize"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_hint(run, tiny_llama, tmp_path, arguments, sentence, hint):
    code, out, err = run(*(str(tiny_llama) if a == "MODEL" else a for a in arguments))
    assert code == 2
    assert out == ""
    lines = err.strip().splitlines()
    assert lines[-2].startswith("error: ")
    assert sentence in lines[-2]
    assert lines[-1].startswith("hint: ")
    assert hint in lines[-1]
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_text_is_refused(run, tiny_llama, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n")
    code, _, err = run("quantize", tiny_llama, *SMALL, "--text", "empty.txt")
    assert (code, "'empty.txt' is empty" in err) == (2, True)


def test_a_text_shorter_than_a_window_is_refused(run, tiny_llama, tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    code, _, err = run("quantize", tiny_llama, "--text", "short.txt", "--no-speed", "--window", "64")
    assert (code, "fewer than one window of 64" in err) == (2, True)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('"model.layers.7" = "int8"', "names 'model.layers.7', which this model does not have"),
        ('"model.layers.0" = "int9"', "no format 'int9'"),
        ("", "leaves out model.layers.0."),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(run, tiny_llama, tmp_path, line, sentence):
    head = 'schema_version = 1\nmodel = "x"\ntarget = "cpu"\nmethod = "by hand"\n[formats]\n'
    (tmp_path / "plan.toml").write_text(head + '"model.embed_tokens" = "bf16"\n' + line + "\n")
    code, _, err = run("quantize", tiny_llama, "--plan", "plan.toml", "--no-judge")
    assert code == 2
    assert sentence in err


def test_weights_that_are_not_finite_are_named(run, tiny_llama, tmp_path):
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(tiny_llama, broken)
    tensors = load_file(broken / "model.safetensors")
    name = "model.layers.1.mlp.down_proj.weight"
    tensors[name][0, 0] = float("nan")
    save_file(tensors, broken / "model.safetensors", metadata={"format": "pt"})
    code, _, err = run("quantize", broken, "--no-judge", "--output", "out")
    assert code == 2
    assert name in err
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_behind(run, tiny_llama, tmp_path, monkeypatch):
    import safetensors.torch

    def full(*_args, **_kwargs):
        raise safetensors.SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    code, _, err = run("quantize", tiny_llama, "--no-judge", "--output", "out")
    assert code == 2
    assert "disk is full" in err
    assert list(tmp_path.iterdir()) == []


def test_too_little_room_is_told_before_writing(run, tiny_llama, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10))
    code, _, err = run("quantize", tiny_llama, "--no-judge", "--output", "out")
    assert code == 2
    assert "10 are free" in err
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_output_folder_is_not_touched(run, tiny_llama, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    code, _, err = run("quantize", tiny_llama, "--output", "mine")
    assert code == 2
    assert "not empty" in err
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_an_output_below_a_file_is_refused(run, tiny_llama, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run("quantize", tiny_llama, "--output", "file/out")
    assert (code, "is a file" in err) == (2, True)


def test_a_compression_out_of_reach_names_the_nearest(run, tiny_llama):
    code, _, err = run("plan", tiny_llama, "--split", "compression", "--compression", "9")
    assert code == 2
    assert "the most is" in err


# --- Interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_nothing_half_written(tmp_path, sent, code):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "genaccel", "quantize", "smollm2-135m", "--no-judge", "--output", "out"]

    def obey_signals() -> None:  # a job in the background is started with Ctrl-C ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=obey_signals
    )
    while not any(p.suffix == ".part" for p in tmp_path.iterdir()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert ("Interrupted; nothing half-written was left." in err) == (sent == signal.SIGINT)
    assert list(tmp_path.iterdir()) == []


# --- What works -------------------------------------------------------------------------------------------------------


def test_help_does_not_import_torch():
    code = "import sys, genaccel.cli; print([m for m in ('torch', 'transformers', 'numpy', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_quantize_evaluate_report(run, tiny_llama, text_file, tmp_path):
    code, out, err = run("quantize", tiny_llama, *quick(text_file), "--output", "out", "--json")
    assert code == 0, err
    baseline, quantized = json.loads(out)
    assert (baseline["mode"], quantized["mode"]) == ("fp32", "real")
    assert {p.name for p in (tmp_path / "out").iterdir()} >= {
        "base", "genaccel.json", "model.safetensors", "plan.toml", "record.json",
    }  # fmt: skip
    assert json.loads((tmp_path / "out" / "record.json").read_text()) == quantized

    code, out, err = run("evaluate", "out", *quick(text_file), "--json")
    assert code == 0, err
    (judged,) = json.loads(out)
    value = {r["id"]: {f["name"]: f["value"] for f in r["figures"]} for r in (quantized, judged)}
    assert value[judged["id"]]["perplexity"] == value[quantized["id"]]["perplexity"]
    assert value[judged["id"]]["tensor_bytes"] == value[quantized["id"]]["tensor_bytes"]

    code, out, err = run("report", "runs", "-o", "report.html")
    assert code == 0, err
    assert "3 records" in out
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")


def test_an_edited_plan_is_what_is_applied(run, tiny_llama, text_file, tmp_path):
    assert run("plan", tiny_llama, "--to", "plan.toml")[0] == 0
    plan = (tmp_path / "plan.toml").read_text()
    (tmp_path / "plan.toml").write_text(plan + '"model.layers.1.mlp.up_proj" = "fp8_e5m2"\n')
    code, out, err = run("quantize", tiny_llama, "--plan", "plan.toml", "--no-judge", "--json")
    assert code == 0, err
    formats = {name: form for name, _, form, _ in json.loads(out)[0]["details"]["layer_formats"]}
    assert formats["model.layers.1.mlp.up_proj"] == "fp8_e5m2"
    assert formats["model.layers.1.mlp.down_proj"] != "fp8_e5m2"


def test_flags_win_over_the_file_and_origins_are_kept(run, tiny_llama, tmp_path):
    (tmp_path / "run.toml").write_text('target = "a100"\nmode = "fake"\nshare = 0.25\nwindow = 16\n')
    code, out, err = run(
        "check", "quantize", tiny_llama, "--config", "run.toml", "--share", "0.75", "--no-speed", "--json"
    )
    assert code == 0, err
    config = json.loads(out)["config"]
    assert config["target"] == {"value": "a100", "origin": "file"}
    assert config["window"] == {"value": 16, "origin": "file"}
    assert config["share"] == {"value": 0.75, "origin": "flag"}
    assert config["embeddings"] == {"value": "high", "origin": "default"}


def test_an_unknown_key_in_the_file_is_an_error(run, tiny_llama, tmp_path):
    (tmp_path / "run.toml").write_text("shar = 0.25\n")
    code, _, err = run("quantize", tiny_llama, "--config", "run.toml")
    assert code == 2
    assert "shar" in err
    assert "--share" in err


def test_the_same_command_twice_gives_the_same_plan_and_figures(run, tiny_llama, text_file, tmp_path):
    results = []
    for folder in ("a", "b"):
        command = [
            "quantize",
            tiny_llama,
            "--mode",
            "fake",
            "--no-speed",
            "--runs",
            folder,
            *quick(text_file),
            "--json",
        ]
        code, out, err = run(*command)
        assert code == 0, err
        record = json.loads(out)[1]
        steady = [f for f in record["figures"] if f["name"] in {"perplexity", "tensor_bytes", "compression"}]
        results.append((steady, record["details"]["plan"]))
    assert results[0] == results[1]


def test_list_shows_every_section(run):
    code, out, _ = run("list", "--json")
    assert code == 0
    found = json.loads(out)
    assert {row["device"] for row in found["devices"]} == {"cpu", "cuda", "hpu"}
    assert {row["task"] for row in found["tasks"]} == {"wikitext2", "hellaswag", "boolq"}
    assert {"a100", "cpu", "gaudi2"} <= {row["target"] for row in found["targets"]}
    assert {"fp32", "int8", "fp8_e4m3", "int4_g32"} <= {row["format"] for row in found["formats"]}


def test_the_working_folder_stays_clean(run, tiny_llama, tmp_path):
    assert run("check", "quantize", tiny_llama, *SMALL)[0] == 0
    assert not [p for p in Path(tmp_path).iterdir() if p.name != "text.txt"]
