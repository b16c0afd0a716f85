"""Predictions on a machine that was probed: from its file's own rates, shared by its processes."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from genaccel.measure import Samples
from genaccel.predict.chips import MEASURED, find_chip
from genaccel.predict.finetuning import Finetuning, predict_finetuning
from genaccel.predict.generating import Generating, predict_generating
from genaccel.predict.superresolving import Superresolving, predict_superresolving
from genaccel.predict.training import TRAINING
from genaccel.probe import Found, Probed, to_toml
from genaccel.shapes import find_shape

RATES = {
    "peak_flops.fp32": (6e10, "FLOP/s"),
    "memory_bandwidth": (1.4e10, "B/s"),
    "link": (1.2e9, "B/s"),
    "all_gather_bus": (8e8, "B/s"),
    "collective_latency": (2e-4, "s"),
    "attention_fp32": (2.5e10, "FLOP/s"),
    "convolution_fp32": (6e10, "FLOP/s"),
    "elementwise": (2.4e9, "B/s"),
    "elementwise_both": (2.4e9, "B/s"),
    "weights_read": (1.15e10, "B/s"),
    "weights_packed": (5e9, "B/s"),
    "kernel_start": (4e-6, "s"),
}
ABOUT = {"description": "A machine, measured", "runtime": "cpu", "source": "genaccel probe: here"}


@pytest.fixture
def probed(tmp_path):
    """Writes a probe's file with these rates, some of them changed or (None) left out."""

    def write(name="mine", **changed):
        rates = {key: (changed.get(key, value), unit) for key, (value, unit) in RATES.items()}
        figures = [Found(key, v, unit, Samples((1.0,), 1), "made up") for key, (v, unit) in rates.items() if v]
        path = tmp_path / f"{name}.toml"
        path.write_text(to_toml(Probed(tuple(figures), {}), name, ABOUT, 16_000_000_000, "2026-12-02"))
        return str(path)

    return write


def finetuning(on, cards=1, strategy="single"):
    return predict_finetuning(Finetuning("smollm2-135m", on, cards, strategy, 4, 1, 256, "fp32"))


def generating(on):
    return predict_generating(Generating("smollm2-135m", on, 1, 1, 256, 32, "fp32"))


def test_products_take_their_flops_over_the_measured_rate(probed):
    shape = find_shape("smollm2-135m")
    found = finetuning(probed())
    share = dict(zip([c.name for c in TRAINING.constants], np.exp(TRAINING.prior_measured), strict=True))
    flops = 6 * 4 * 256 * shape.num_layers * shape.layer_weights
    packed = 4 * 3 * 4 * shape.num_parameters / RATES["weights_packed"][0]  # four times, three products of 4 bytes
    expected = flops / 6e10 / share["matrix"] * (1 + share["width"] / shape.hidden_size) + packed
    assert found.parts["matrix products"] == pytest.approx(expected, rel=1e-3)
    assert share["matrix"] < 1, "no more than the rate of square products"


def test_what_others_reach_of_their_peaks_does_not_matter(probed):
    chip = find_chip(probed())
    assert chip.family == MEASURED
    step = finetuning(probed())
    assert step.parts == finetuning(probed("renamed")).parts
    assert step.mfu is None, "a rate that was reached is no peak"


@pytest.mark.parametrize(
    ("rate", "times", "predict", "part"),
    [
        ("peak_flops.fp32", 2, finetuning, "output head"),
        ("attention_fp32", 2, finetuning, "attention"),
        ("elementwise_both", 2, finetuning, "streaming"),
        ("elementwise", 2, generating, "prefill: streaming"),
        ("weights_read", 2, generating, "decode: matrix products"),
        ("peak_flops.fp32", 2, generating, "prefill: matrix products"),
        ("attention_fp32", 2, generating, "prefill: attention"),
    ],
)
def test_each_part_follows_its_own_rate(probed, rate, times, predict, part):
    slow, fast = predict(probed()), predict(probed("fast", **{rate: times * RATES[rate][0]}))
    assert slow.parts[part] / fast.parts[part] == pytest.approx(times, rel=0.13)
    assert fast.seconds < slow.seconds


def test_a_convolution_and_a_start_follow_theirs(probed):
    def parts(**changed):
        on = probed("x" if changed else "mine", **changed)
        return predict_superresolving(Superresolving("tiny", on, precision="fp32")).parts

    assert parts()["convolutions"] == pytest.approx(2 * parts(convolution_fp32=1.2e11)["convolutions"])
    assert parts()["host"] > parts(kernel_start=1e-9)["host"]


def test_rates_that_an_old_file_lacks_are_shares_of_the_others(probed):
    without = dict.fromkeys(
        RATES.keys() - {"peak_flops.fp32", "memory_bandwidth", "link", "all_gather_bus", "collective_latency"}
    )
    assert finetuning(probed("old", **without)).seconds == pytest.approx(finetuning(probed()).seconds, rel=0.1)
    assert generating(probed("old", **without)).seconds == pytest.approx(generating(probed()).seconds, rel=0.1)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero3"])
def test_processes_share_the_machine(probed, strategy):
    """Twice the processes have half of it each, so that the same batch takes no less time, and what is sent comes on top."""
    one, two = finetuning(probed()), finetuning(probed(), 2, strategy)
    assert two.parts["matrix products"] == pytest.approx(one.parts["matrix products"])
    sent = two.seconds - one.seconds
    least = 4 * find_shape("smollm2-135m").num_parameters / RATES["link"][0]
    assert sent >= 0.95 * least
    assert two.parts["communication"] >= 0.95 * least


def test_a_few_rows_pay_for_packing_and_one_does_not(probed):
    def products(batch, **changed):
        on = probed("x" if changed else "mine", **changed)
        found = predict_generating(Generating("smollm2-135m", on, 1, batch, 256, 32, "fp32"))
        return found.parts["decode: matrix products"]

    assert products(1) == products(1, weights_packed=3e9)
    less = products(4, weights_packed=3e9) - products(4)
    weights = find_shape("smollm2-135m")
    matrices = 4 * (weights.num_layers * weights.layer_weights + weights.embedding_weights)
    assert less == pytest.approx(32 * matrices * (1 / 3e9 - 1 / 5e9), rel=1e-3)


def test_cards_of_the_catalogue_are_not_shared():
    assert find_chip("h100").part(8) is find_chip("h100")


def test_a_file_that_was_written_again_is_read_again(probed):
    before = finetuning(probed()).seconds
    path = probed(**{"peak_flops.fp32": 1.2e11})
    os.utime(path, ns=(1, 1))
    assert finetuning(path).seconds < before


def test_a_file_from_the_command_line(run, probed, tmp_path):
    on = probed()
    options = ("--precision", "fp32", "--cards", "1,2", "--strategy", "ddp,fsdp", "--batch", "4", "--length", "256")
    code, out, err = run("predict", "finetune", "smollm2-135m", "--on", on, *options, "--json")
    assert code == 0, err
    assert [p["settings"]["on"] for p in json.loads(out)] == ["mine"] * 4
    code, _, err = run("predict", "inference", "smollm2-135m", "--on", str(tmp_path / "none.toml"))
    assert code == 2
    assert "There is no file" in err
    code, _, err = run("predict", "inference", "smollm2-135m", "--on", on, "--precision", "fp8")
    assert code == 2
    assert "mine does not compute in fp8" in err
    assert "fp32" in err
