"""Fine-tuning from the command line: real processes, faults, what is left on disk, and every kind of bad input."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from genaccel import models
from genaccel.store import read_records

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--length", "64", "--global-batch", "4")
TOGETHER = ("--strategy", "ddp", "--processes", "2")


@pytest.fixture
def instructions(tmp_path):
    path = tmp_path / "data.json"
    records = [{"instruction": f"Say {i}.", "input": "", "output": f"{i} it is."} for i in range(60)]
    path.write_text(json.dumps(records))
    return path


def start(tmp_path, *arguments, variables=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GENACCEL_CACHE": str(tmp_path / "cache")} | (variables or {})
    command = [sys.executable, "-m", "genaccel", "finetune", *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, out + err[-3000:]
    return out, err


def only_record(folder):
    (record,) = read_records(folder)[0]
    return record


def wait_for(condition, what, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came"
        time.sleep(0.05)


# --- What a run leaves ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_adapters_merge_into_what_they_computed(run, tiny_llama, instructions, tmp_path):
    code, out, err = run(
        "finetune", tiny_llama, "--dataset", instructions, *SMALL, "--lora", "--steps", 8, "--holdout", 8,
        "--ask", "Say 3.", "--output", "made", "--learning-rate", "1e-2", "--json",
    )  # fmt: skip
    assert code == 0, err
    (record,) = json.loads(out)
    figures = {f["name"]: f["value"] for f in record["figures"]}
    assert figures["held_out_loss_after"] < figures["held_out_loss_before"]
    assert figures["last_loss"] < figures["first_loss"]
    assert figures["mfu"] is None
    assert figures["train_tokens_per_second"] > 0
    assert isinstance(record["details"]["answers"]["after"], str)
    # peft itself puts the adapter on the base model; the merged folder must compute the same.
    from peft import PeftModel

    ids = torch.randint(258, (2, 20))
    merged = models.load(models.resolve("made")).model
    adapted = PeftModel.from_pretrained(models.load(models.resolve(str(tiny_llama))).model, "made/adapter")
    with torch.no_grad():
        ours, theirs = merged(input_ids=ids).logits, adapted(input_ids=ids).logits
        base = models.load(models.resolve(str(tiny_llama))).model(input_ids=ids).logits
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(ours, base, atol=1e-3)


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_leave_one_record_and_weights_that_load(tiny_llama, instructions, tmp_path):
    process = start(
        tmp_path, tiny_llama, "--dataset", instructions, *SMALL, "--strategy", "fsdp", "--processes", 2, "--steps", 4,
        "--output", tmp_path / "made",
    )  # fmt: skip
    out, err = finish(process)
    assert "tokens/s" in out
    assert err.count("Training: 0/4") == 1, "one process speaks"
    record = only_record(tmp_path / "runs")
    assert record.environment.num_devices == 2
    assert record.details["strategy"]["wrapped"].startswith("FSDP")
    assert len(record.details["curves"]["by_rank"]) == 2
    assert record.figure("communication_bytes").value > 0
    made = models.load(models.resolve(str(tmp_path / "made"))).model
    before = models.load(models.resolve(str(tiny_llama))).model
    changed = [n for n, p in made.named_parameters() if not torch.equal(p, before.get_parameter(n))]
    assert len(changed) == len(list(made.parameters()))
    assert not (tmp_path / "runs" / ".unfinished").exists() or not list((tmp_path / "runs" / ".unfinished").iterdir())


# --- Faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.distributed
def test_told_to_end_it_saves_says_how_and_goes_on(tiny_llama, instructions, tmp_path):
    arguments = (tiny_llama, "--dataset", instructions, *SMALL, *TOGETHER, "--steps", 400, "--save-every", 400)
    process = start(tmp_path, *arguments)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("Training: 0/"):
            break
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    out, _ = finish(process)
    assert "Told to end after step" in out
    assert "Give the same command to go on." in out
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*.json")), "no record of half a run"
    saved = int(out.split("after step ")[1].split(";")[0])
    again = start(tmp_path, *arguments)
    _, err = finish(again)
    assert "Going on from" in err
    record = only_record(tmp_path / "runs")
    assert record.details["first_step"] == saved
    assert len(record.details["losses"]) == 400
    assert len(record.details["curves"]["loss"]) == 400 - saved, "speed is of the steps that this run took"


@pytest.mark.slow
@pytest.mark.distributed
def test_a_killed_process_ends_the_run_and_the_last_checkpoint_is_whole(tiny_llama, instructions, tmp_path):
    folder = tmp_path / "checkpoints"
    arguments = (tiny_llama, "--dataset", instructions, *SMALL, *TOGETHER, "--steps", 300, "--save-every", 20)
    process = start(tmp_path, *arguments, "--checkpoints", folder)
    wait_for(lambda: list(folder.glob("step-*")), "a checkpoint")
    # The launcher's children are the two processes; the second is the youngest.
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    workers = [int(c) for c in children if b"finetune" in Path(f"/proc/{c}/cmdline").read_bytes()]
    os.kill(max(workers), signal.SIGKILL)
    _, err = finish(process, code=1)
    assert "was ended by SIGKILL in step" in err
    assert "goes on from the last one" in err
    assert not any(Path(f"/proc/{w}").exists() for w in workers)
    _, err = finish(start(tmp_path, *arguments, "--checkpoints", folder))
    assert "Going on from" in err
    assert len(only_record(tmp_path / "runs").details["losses"]) == 300


def test_a_loss_that_explodes_stops_with_its_records(run, tiny_llama, instructions):
    code, _, err = run(
        "finetune", tiny_llama, "--dataset", instructions, *SMALL, "--steps", 9, "--learning-rate", "1e30"
    )
    assert code == 2
    assert "is nan" in err or "not finite" in err or "is inf" in err
    assert "training examples " in err
    assert "hint: Lower --learning-rate" in err


# --- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--strategy", "ddp2"), "ddp"),
        (("--attention", "flsh"), "flash"),
        (("--steps", 0), "--steps is 0"),
        (("--length", 500), "was made for 128 tokens"),
        (("--global-batch", 100), "more than the 60 examples"),
        (("--lora", "--lora-targets", "qproj"), "No linear layer is called 'qproj'"),
        (("--lora-targets", "q_proj"), "only used with --lora"),
        (("--holdout", 60), "leaves none"),
        (("--precision", "fp16"), "loss scaling"),
        (("--attention", "memory-efficient"), "Available: flash, math"),
        (("--too-long", "error", "--length", 20), "Record 1 of data.json has"),
        (("--strategy", "ddp"), "at least two processes"),
        (("--processes", 200, "--strategy", "ddp"), "cannot be split over 200 processes"),
        (("--grid", "strategy"), "is no option with values"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(run, tiny_llama, instructions, options, sentence):
    base = ("finetune", tiny_llama, "--dataset", instructions, "--no-packing", "--length", 64)
    given = [o for o in base if not (o in ("--length", 64) and "--length" in options)]
    code, out, err = run(*given, *options)
    assert code == 2
    assert sentence in err
    assert out == ""
    assert not Path("runs").exists() or not list(Path("runs").glob("*.json"))


def test_a_model_that_will_not_fit_is_said_before_it_is_loaded(run, tiny_llama, instructions, monkeypatch):
    monkeypatch.setattr("genaccel.devices.cpu.memory_bytes", lambda: 100_000_000)
    monkeypatch.setattr("genaccel.models.load", lambda *_: pytest.fail("loaded"))
    code, _, err = run("finetune", tiny_llama, "--dataset", instructions, *SMALL)
    assert code == 2
    assert "would need about" in err
    assert "predicted" in err


@pytest.mark.parametrize("preset", sorted((ROOT / "examples").glob("*.toml")), ids=lambda p: p.stem)
@pytest.mark.parametrize("cluster", ["voyager", "perlmutter"])
def test_presets_are_valid_without_weights(run, preset, cluster):
    code, out, err = run("check", "finetune", "--config", preset, "--cluster", cluster)
    assert code == 0, err
    assert f"it would run on {cluster}" in out
    assert "predicted" in out


def test_a_preset_that_cannot_fit_says_what_would(run):
    preset = ROOT / "examples" / "llama3.1-8b.toml"
    code, _, err = run("check", "finetune", "--config", preset, "--cluster", "voyager", "--strategy", "ddp")
    assert code == 2
    assert "a gaudi1 of voyager has 32.0 GB" in err
    assert "--strategy fsdp" in err


@pytest.mark.slow
@pytest.mark.distributed
def test_processes_that_mpi_started_find_each_other(tiny_llama, instructions, tmp_path):
    """Open MPI's variables, set by hand: each process is told nothing but these."""
    arguments = (tiny_llama, "--dataset", instructions, *SMALL, "--strategy", "ddp", "--steps", 3)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in ("0", "1"):
        names = {"RANK": rank, "SIZE": "2", "LOCAL_RANK": rank, "LOCAL_SIZE": "2"}
        given = {f"OMPI_COMM_WORLD_{k}": v for k, v in names.items()} | {"MASTER_PORT": str(port)}
        processes.append(start(tmp_path, *arguments, variables=given))
    outputs = [finish(p) for p in processes]
    assert "tokens/s" in outputs[0][0]
    assert outputs[1] == ("", ""), "the second process is silent"
    record = only_record(tmp_path / "runs")
    assert record.environment.num_devices == 2
    assert record.label.endswith("ddp x2")
