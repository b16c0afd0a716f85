"""Comparisons align like with like, or say what differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.made_records import ENVIRONMENT, TEXT, fake, fp32, number, real, tuned

from genaccel.compare.alignment import Asked, compare
from genaccel.compare.numbers import direction, find_metric
from genaccel.errors import UserError
from genaccel.records import Record, Setting

RATE = "train_tokens_per_second"


def on(record: Record, accelerator: str, processes: int = 2, **more: Any) -> Record:
    return replace(
        record, environment=replace(ENVIRONMENT, accelerator=accelerator, num_devices=processes, device="cuda"), **more
    )


def setting(record: Record, **values: Any) -> Record:
    return replace(record, config=record.config | {k: Setting(v, "flag") for k, v in values.items()})


def scaled(processes: int, speed: float, batch: int = 8, strategy: str = "ddp") -> Record:
    """A run of some processes whose protocol says how many there were."""
    run = setting(tuned(f"p{processes}{strategy}{batch}", strategy, speed), global_batch=batch)
    world = f", all {processes} processes together" if processes > 1 else ""
    protocol = f"median of tokens without padding{world}; 5 steps after 2 of warm-up, slowest process of each step"
    figures = (replace(run.figures[0], protocol=protocol), *run.figures[1:])
    return on(run, "A100-SXM4-80GB", processes, figures=figures)


# --- What may be compared ---------------------------------------------------------------------------------------------


def test_generations_by_the_catalogues_names_and_the_slowest_is_the_base() -> None:
    runs = [on(tuned("a", speed=100.0), "NVIDIA A100-SXM4-80GB"), on(tuned("h", speed=250.0), "NVIDIA H100 80GB HBM3")]
    (found,) = compare(runs, Asked("accelerator", "tokens_per_second")).comparisons
    assert (found.metric, found.axis, found.better, found.unit) == (RATE, "accelerator", 1, "tokens/s")
    assert [(c.at, c.value, c.ratio) for c in found.cells] == [("a100", 100.0, None), ("h100", 250.0, 2.5)]
    low, high = found.cells[1].interval or (0.0, 0.0)
    assert 2.4 <= low < 2.5 < high <= 2.6
    assert found.cells[1].records == ("h",)
    assert found.equal["strategy"] == "ddp"
    assert found.equal["data"] == f"alpaca.json {'c' * 12}"


def test_strategies_and_a_base_of_ones_own() -> None:
    runs = [tuned("d", "ddp", 100.0), tuned("f", "fsdp", 80.0), tuned("z", "zero3", 60.0)]
    (found,) = compare(runs, Asked("strategy", RATE)).comparisons
    assert [(c.at, c.ratio and round(c.ratio, 6)) for c in found.cells] == [
        ("ddp", None),
        ("fsdp", 0.8),
        ("zero3", 0.6),
    ]
    (found,) = compare(runs, Asked("strategy", RATE, base="zero3")).comparisons
    assert found.cells[0].at == "zero3"
    with pytest.raises(UserError, match="strategy 'zero'"):
        compare(runs, Asked("strategy", RATE, base="zero"))


def test_repeated_runs_share_a_cell() -> None:
    runs = [tuned("1", "ddp", 100.0), tuned("2", "ddp", 140.0), tuned("3", "ddp", 110.0), tuned("4", "fsdp", 55.0)]
    (found,) = compare(runs, Asked("strategy", RATE)).comparisons
    base, other = found.cells
    assert (base.value, base.records, base.num_samples) == (110.0, ("1", "2", "3"), 15)
    assert "runs differ by 36%" in base.remarks
    assert other.ratio == 0.5
    assert other.interval is not None
    assert other.interval[0] < 55 / 135, "the interval knows that runs differ, not only the steps of one"


def test_any_setting_is_an_axis() -> None:
    runs = [setting(tuned("1", speed=100.0), length=512), setting(tuned("2", speed=90.0), length=1024)]
    (found,) = compare(runs, Asked("length", RATE)).comparisons
    assert {c.at for c in found.cells} == {"512", "1024"}


def test_precisions_of_judged_models_and_fake_ones_apart() -> None:
    (found,) = compare([fp32(), fake(), real()], Asked("precision", "decode_tokens_per_second")).comparisons
    assert [c.at for c in found.cells] == ["fp32", "bf16+int8, fake"]
    assert found.cells[1].ratio == pytest.approx(0.9)
    assert found.cells[1].interval is None, "one number tells nothing of its spread"


def test_unlike_runs_of_one_mode_are_told_apart_and_alike_ones_share_a_cell() -> None:
    other = [["embed", "embedding", "fp16", "600"], ["layers.0.attn.q", "0", "int8", "100"]]
    runs = [fp32(), fake("a"), fake("b"), fake("c", details={"layer_formats": other})]
    (found,) = compare(runs, Asked("mode", "perplexity")).comparisons
    assert {c.at: c.records for c in found.cells} == {
        "fp32": ("base",),
        "fake (precision bf16+int8, fake)": ("a", "b"),
        "fake (precision fp16+int8, fake)": ("c",),
    }


def test_what_training_leads_to_counts_for_losses_and_not_for_speed() -> None:
    runs = [setting(tuned("1", "ddp"), learning_rate=1e-4), setting(tuned("2", "fsdp"), learning_rate=2e-4)]
    assert compare(runs, Asked("strategy", RATE)).comparisons
    with pytest.raises(UserError, match="differ in learning_rate"):
        compare(runs, Asked("strategy", "last_loss"))


# --- Scaling ----------------------------------------------------------------------------------------------------------


def test_strong_scaling_from_a_single_process() -> None:
    runs = [scaled(1, 100.0, strategy="single"), scaled(2, 190.0), scaled(4, 320.0)]
    (found,) = compare(runs, Asked("processes", RATE)).comparisons
    assert [(c.at, c.efficiency) for c in found.cells] == [("1", None), ("2", 0.95), ("4", 0.8)]
    assert found.equal["global_batch"] == "8"


def test_weak_scaling_keeps_the_batch_of_a_process() -> None:
    (found,) = compare([scaled(1, 100.0, 8), scaled(4, 360.0, 32)], Asked("processes", RATE)).comparisons
    assert found.cells[1].efficiency == 0.9
    assert "global_batch" not in found.equal
    assert found.equal["micro_batch"] == "8"


# --- What may not -----------------------------------------------------------------------------------------------------


OTHER_TEXT = {"details": {"model_fingerprint": "f00d", "text": TEXT | {"sha256": "b" * 64}}}


@pytest.mark.parametrize(
    ("records", "asked", "differs"),
    [
        ([tuned("1"), tuned("2", "fsdp", data={"alpaca.json": "e" * 64})], ("strategy", RATE), "data"),
        ([tuned("1"), setting(tuned("2", "fsdp"), precision="bf16")], ("strategy", RATE), "precision"),
        ([tuned("1"), on(tuned("2", "fsdp"), "GAUDI2")], ("strategy", RATE), "accelerator and threads"),
        ([tuned("1"), on(tuned("2"), "GAUDI2", 8)], ("accelerator", RATE), "micro_batch and processes"),
        ([fp32(), fake(**OTHER_TEXT)], ("precision", "perplexity"), "data"),
        ([fp32(), fake(protocol="another window")], ("precision", "perplexity"), "protocol"),
        (
            [fp32(), real(model="other", details={"model_fingerprint": "beef", "text": dict(TEXT)})],
            ("precision", "perplexity"),
            "model and weights",
        ),
    ],
)
def test_unlike_records_are_refused_and_what_differs_is_named(
    records: list[Record], asked: tuple[str, str], differs: str
) -> None:
    with pytest.raises(UserError) as caught:
        compare(records, Asked(*asked))
    assert f"also differ in {differs}" in caught.value.message
    assert records[0].id in caught.value.message
    for field in differs.split(" and "):
        assert f"{field}: " in caught.value.hint
        assert " against " in caught.value.hint


def test_those_that_stand_alone_are_left_out_and_it_is_said_why() -> None:
    runs = [tuned("1"), tuned("2", "fsdp"), setting(tuned("3", "zero3"), precision="bf16")]
    found = compare(runs, Asked("strategy", RATE))
    assert len(found.comparisons) == 1
    assert found.left_out == ("3 (strategy zero3): alone, for precision differs",)


@pytest.mark.parametrize(
    ("axis", "metric", "message", "hint"),
    [
        ("accelerator", RATE, "All 2 records with train_tokens_per_second have accelerator", "They differ in strategy"),
        ("strateg", RATE, "no 'strateg' to compare by", "strategy"),
        ("strategy", "last_los", "No record has a figure 'last_los'", "last_loss"),
        ("strategy", "seconds", "'seconds' can mean backward_seconds, forward_seconds", "--metric backward_seconds"),
    ],
)
def test_a_question_that_has_no_answer(axis: str, metric: str, message: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        compare([tuned("1"), tuned("2", "fsdp")], Asked(axis, metric))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_measured_is_not_compared_with_predicted() -> None:
    other = tuned("2", "fsdp")
    predicted = replace(other, figures=tuple(replace(f, kind="predicted") for f in other.figures))
    with pytest.raises(UserError, match="differ in kind"):
        compare([tuned("1"), predicted], Asked("strategy", RATE))


# --- Cost, energy, software, names ------------------------------------------------------------------------------------


def test_cost_where_a_price_is_given_and_energy_of_one_device() -> None:
    run = tuned("1", "ddp", 100.0)
    alone = on(replace(run, figures=(*run.figures, number("energy_joules", 600.0, "J"))), "GAUDI2", 1)
    runs = [alone, on(tuned("2", "ddp", 200.0), "A100-SXM4-80GB", 1)]
    (found,) = compare(runs, Asked("accelerator", RATE, prices={"gaudi2": 3.6})).comparisons
    by = {c.at: c for c in found.cells}
    assert by["gaudi2"].cost == pytest.approx(3.6 / 3600 / 100 * 1e6)
    assert by["gaudi2"].joules == pytest.approx(600 / 300), "100 tokens in each of three steps"
    assert by["a100"].cost is by["a100"].joules is None


def test_other_software_is_a_remark() -> None:
    newer = replace(ENVIRONMENT, num_devices=2, packages={"numpy": "3.0.0"})
    (found,) = compare([tuned("1"), tuned("2", "fsdp", environment=newer)], Asked("strategy", RATE)).comparisons
    assert found.notes == ("numpy 2.0.0 and 3.0.0",)


@pytest.mark.parametrize(
    ("metric", "way"),
    [(RATE, 1), ("compression", 1), ("hellaswag_acc_norm", 1), ("mfu", 1), ("step_seconds", -1), ("perplexity", -1),
     ("peak_memory_bytes", -1), ("diffusion_crps", -1), ("last_loss", -1), ("diffusion_power_mid_k", 0)],
)  # fmt: skip
def test_which_way_is_better(metric: str, way: int) -> None:
    assert direction(metric) == way


def test_a_metric_by_the_end_of_its_name() -> None:
    assert find_metric("tokens_per_second", [tuned()]) == RATE
    with pytest.raises(UserError, match="can mean decode_tokens_per_second, prefill_tokens_per_second"):
        find_metric("tokens_per_second", [fp32()])
