"""Training a super-resolver from the command line: it learns, two processes do the same, and it goes on where it stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from astropy.io import fits
from astropy.wcs import WCS
from safetensors.torch import load_file

from genaccel.store import read_records
from genaccel.superres.synthetic import synthetic_dust
from genaccel.train.probing import Arithmetic, Probe

FAST = ("--patch", "16", "--factor", "2", "--global-batch", "4", "--learning-rate", "2e-3", "--no-probe")


@pytest.fixture(scope="module")
def maps(tmp_path_factory):
    """A folder of synthetic maps."""
    folder = tmp_path_factory.mktemp("maps")
    for made in synthetic_dust(8, 32):
        np.save(folder / f"{made.name}.npy", made.values)
    return folder


def start(tmp_path, *arguments):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "genaccel", "superres", "train", *map(str, arguments)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def losses_in(folder):
    (record,) = read_records(folder)[0]
    return record.details["curves"]["loss"]


def test_it_learns_and_samples_maps_in_their_units(run, maps, tmp_path):
    code, out, err = run("superres", "train", maps, *FAST, "--steps", 150, "--output", "model", "--json")
    assert code == 0, err
    (record,) = json.loads(out)
    figures = {f["name"]: f["value"] for f in record["figures"]}
    losses = record["details"]["curves"]["loss"]
    assert np.mean(losses[-15:]) < 0.92 * np.mean(losses[:15])  # a likelihood and a velocity have floors
    assert figures["train_images_per_second"] > 0
    assert figures["step_flops"] == 4 * record["details"]["flops_per_image"]
    assert not set(record["details"]["maps"]["train"]) & set(record["details"]["maps"]["test"])

    header = WCS(naxis=2)
    header.wcs.ctype, header.wcs.cdelt, header.wcs.crpix = ["GLON-TAN", "GLAT-TAN"], [-0.1, 0.1], [1, 1]
    image = fits.PrimaryHDU(synthetic_dust(1, 24, seed=9)[0].values, header.to_header())
    image.header["BUNIT"] = "mag"
    image.writeto("seen.fits")
    code, out, err = run("superres", "sample", "seen.fits", "--model", "model", "--members", 3, "--steps", 4)
    assert code == 0, err
    with fits.open("super-resolved/seen_x2.fits") as found:
        assert [h.name for h in found] == ["MEAN", "DEVIATION", "REGRESSION", "MEMBER1", "MEMBER2", "MEMBER3"]
        assert found["MEAN"].data.shape == (48, 48)
        assert found["MEAN"].header["BUNIT"] == "mag"
        assert found["MEAN"].header["CDELT2"] == pytest.approx(0.05)
        mean = found["MEAN"].data.astype(float).reshape(24, 2, 24, 2).mean(axis=(1, 3))
        np.testing.assert_allclose(mean, image.data, rtol=1e-5)

    code, out, err = run(
        "superres", "evaluate", "--model", "model", "--data", maps, "--members", 3, "--steps", 4, "--json"
    )
    assert code == 0, err
    names = {f["name"] for f in json.loads(out)[0]["figures"]}
    assert {
        f"{m}_{q}" for m in ("bicubic", "regression", "diffusion") for q in ("psnr", "crps", "power_high_k")
    } <= names
    assert os.path.getsize("super-resolved/pictures.png") > 10_000
    (record,) = json.loads(out)
    assert [len(sha256) for sha256 in record["data"].values()] == [64]
    spectra = record["details"]["spectra"]
    assert {len(v) for v in spectra.values()} == {len(spectra["k"])}
    assert set(spectra) == {"k", "bicubic", "regression", "a member"}
    code, out, err = run("report", "runs", "--json")
    assert code == 0, err
    page = Path("report.html").read_text()
    assert "unknown shape" not in page
    assert page.count('<img src="data:image/png;base64,') == 7 * len(record["details"]["pictures"]) > 0


@pytest.mark.slow
@pytest.mark.distributed
def test_two_processes_learn_the_same(maps, tmp_path):
    start(tmp_path, maps, *FAST, "--steps", 10, "--runs", "one", "--output", "a")
    start(tmp_path, maps, *FAST, "--steps", 10, "--runs", "two", "--output", "b", "--strategy", "ddp", "--processes", 2)
    start(tmp_path, maps, *FAST, "--steps", 10, "--runs", "small", "--output", "c", "--micro-batch", 1)
    sharded = ("--strategy", "fsdp", "--processes", 2)
    start(tmp_path, maps, *FAST, "--steps", 10, "--runs", "shards", "--output", "d", *sharded)
    alone = losses_in(tmp_path / "one")
    assert losses_in(tmp_path / "two") == pytest.approx(alone, rel=1e-5)
    assert losses_in(tmp_path / "small") == pytest.approx(alone, rel=1e-5)
    assert losses_in(tmp_path / "shards") == pytest.approx(alone, rel=1e-5)
    whole, gathered = (load_file(tmp_path / name / "model.safetensors") for name in ("a", "d"))
    assert {name: t.shape for name, t in gathered.items()} == {name: t.shape for name, t in whole.items()}
    assert all(torch.allclose(gathered[name], whole[name], atol=1e-5) for name in whole)


@pytest.mark.parametrize("channels_last", [False, True])
def test_resumed_equals_uninterrupted_running_mean_included(run, maps, tmp_path, monkeypatch, channels_last):
    chosen = Probe(Arithmetic(channels_last=channels_last), {})
    monkeypatch.setattr("genaccel.superres.run._probe", lambda *_: chosen)
    common = ("superres", "train", maps, *FAST)
    assert run(*common, "--steps", 8, "--output", "whole", "--runs", "r1")[0] == 0
    assert (
        run(*common, "--steps", 4, "--output", "half", "--runs", "r2", "--checkpoints", "c", "--save-every", 4)[0] == 0
    )
    code, _, err = run(
        *common, "--steps", 8, "--output", "rest", "--runs", "r3", "--checkpoints", "c", "--save-every", 4
    )
    assert code == 0
    assert "Going on from" in err
    whole, rest = load_file("whole/model.safetensors"), load_file("rest/model.safetensors")
    assert all(torch.equal(whole[name], rest[name]) for name in whole)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--factor", 3), "it must be 2, 4 or 8"),
        (("--patch", 30, "--factor", 4), "cannot be divided into blocks of 4"),
        (("--patch", 64), "No training map holds a patch of 64"),
        (("--process", "edn"), "no diffusion process 'edn'"),
        (("--preset", "huge"), "no size 'huge'"),
        (("--ema", 1), "--ema is 1"),
        (("--minutes", 0), "--minutes is 0"),
        (("--strategy", "zero3", "--processes", 2), "not zero3"),
    ],
)
def test_bad_input_is_one_sentence(run, maps, options, sentence):
    code, out, err = run("superres", "train", maps, "--steps", 2, *options)
    assert (code, out) == (2, "")
    assert sentence in err


def test_too_few_areas_and_no_model(run, maps, tmp_path):
    code, _, err = run("superres", "train", maps / "synthetic-0-0.npy", "--steps", 1)
    assert code == 2
    assert "1 areas" in err
    code, _, err = run("superres", "sample", maps / "synthetic-0-0.npy", "--model", "nowhere")
    assert code == 2
    assert "holds no super-resolution model" in err


def test_what_trains_fastest_is_measured_and_told(run, maps, tmp_path):
    code, out, err = run("superres", "train", maps, *FAST[:-1], "--steps", 2, "--json")
    assert code == 0, err
    arithmetic = json.loads(out)[0]["details"]["arithmetic"]
    assert set(arithmetic["probed_step_seconds"]) == {
        f"{precision}, {layout}" for precision in ("fp32", "bf16") for layout in ("contiguous", "channels last")
    }
    assert f"Arithmetic: {arithmetic['chosen']} (measured:" in err


def test_a_model_of_another_factor_and_too_little_memory(run, maps, tmp_path, monkeypatch):
    assert run("superres", "train", maps, *FAST, "--steps", 1, "--output", "model")[0] == 0
    low = maps / "synthetic-0-0.npy"
    code, _, err = run("superres", "sample", low, "--model", "model", "--factor", 4)
    assert code == 2
    assert "enlarges 2 times, not 4 times" in err
    monkeypatch.setattr("genaccel.devices.cpu.memory_bytes", lambda: 8_000_000)
    code, _, err = run("superres", "sample", low, "--model", "model", "--members", 2, "--steps", 2)
    assert code == 0, err
    np.save("wide.npy", np.ones((200, 200)))
    code, _, err = run("superres", "sample", "wide.npy", "--model", "model", "--members", 1, "--steps", 2)
    assert code == 2
    assert "Tiles of 256 pixels do not fit" in err
    assert "Use --tile 96" in err
    code, _, err = run("superres", "sample", "wide.npy", "--model", "model", "--members", 8)
    assert code == 2
    assert "fewer --members" in err


@pytest.mark.slow
@pytest.mark.distributed
def test_scaling_trains_with_every_number_of_processes(maps, tmp_path):
    done = start(tmp_path, maps, *FAST, "--steps", 4, "--scaling", "1,2", "--json")
    one, two = json.loads(done.stdout)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert one["efficiency"] == 1
    assert two["efficiency"] == pytest.approx(two["per_second"] / 2 / one["per_second"])
