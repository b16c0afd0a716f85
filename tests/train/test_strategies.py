"""Every strategy trains the same model to the same losses, and goes on where any other stopped. Two real processes."""

from __future__ import annotations

import shutil

import pytest
from tests.train.launched import run_jobs

pytestmark = [pytest.mark.slow, pytest.mark.distributed]
NUM_STEPS = 20
SHARDED = ("ddp", "fsdp", "zero3", "zero2")


@pytest.fixture(scope="module")
def alone(tiny_llama, tiny_llama_odd):
    """Losses of one process: all at once, accumulated, LoRA, recomputed."""
    jobs = [
        {"name": "full", "config": {"strategy": "single", "micro_batch": 8}},
        {"name": "accumulated", "config": {"strategy": "single", "micro_batch": 2}},
        {"name": "recomputed", "config": {"strategy": "single", "activation_checkpointing": True}},
        {"name": "lora", "lora": True, "config": {"strategy": "single"}},
        {"name": "odd", "model": str(tiny_llama_odd), "steps": 6, "config": {"strategy": "single"}},
    ]
    return run_jobs(tiny_llama, jobs, 1)


@pytest.fixture(scope="module")
def together(tiny_llama, tiny_llama_odd):
    """The same by two processes under every strategy."""
    jobs = []
    for strategy in ("ddp", "fsdp", "zero1", "zero2", "zero3"):
        jobs.append({"name": f"{strategy} full", "config": {"strategy": strategy}})
        jobs.append({"name": f"{strategy} accumulated", "config": {"strategy": strategy, "micro_batch": 2}})
        jobs.append({"name": f"{strategy} lora", "lora": True, "config": {"strategy": strategy}})
    jobs.append({"name": "fsdp recomputed", "config": {"strategy": "fsdp", "activation_checkpointing": True}})
    jobs.append({"name": "fsdp kept", "config": {"strategy": "fsdp", "reshard": False}})
    jobs.append({"name": "fsdp hybrid", "config": {"strategy": "fsdp", "shard_processes": 1}})
    for strategy in ("ddp", "fsdp", "zero2", "zero3"):
        jobs.append(
            {"name": f"{strategy} odd", "model": str(tiny_llama_odd), "steps": 6, "config": {"strategy": strategy}}
        )
    return run_jobs(tiny_llama, jobs, 2)


CASES = [
    (f"{strategy} {how}", "lora" if how == "lora" else "full")
    for strategy in ("ddp", "fsdp", "zero1", "zero2", "zero3")
    for how in ("full", "accumulated", "lora")
] + [("fsdp recomputed", "full"), ("fsdp kept", "full"), ("fsdp hybrid", "full")]


@pytest.mark.parametrize(("case", "reference"), CASES)
def test_losses_equal_those_of_one_process(alone, together, case, reference):
    losses = together[case]["losses"]
    assert len(losses) == NUM_STEPS
    assert losses == pytest.approx(alone[reference]["losses"], rel=1e-5)
    assert together[case]["norms"] == pytest.approx(alone[reference]["norms"], rel=1e-4)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "zero2", "zero3"])
def test_nothing_needs_to_divide_by_the_number_of_processes(alone, together, strategy):
    assert together[f"{strategy} odd"]["losses"] == pytest.approx(alone["odd"]["losses"], rel=1e-5)
    assert together[f"{strategy} odd"]["checksum"] == pytest.approx(alone["odd"]["checksum"], rel=1e-5)


@pytest.mark.parametrize("case", ["accumulated", "recomputed"])
def test_accumulation_and_recomputation_change_nothing(alone, case):
    assert alone[case]["losses"] == pytest.approx(alone["full"]["losses"], rel=1e-5)


def test_adapters_train_something_else_than_the_weights(alone):
    assert alone["lora"]["losses"][0] == pytest.approx(alone["full"]["losses"][0], rel=1e-6)
    assert abs(alone["lora"]["losses"][-1] - alone["full"]["losses"][-1]) > 1e-5


def test_what_was_wrapped_is_what_was_asked_for(together):
    wrapped = {name: result["about"] for name, result in together.items()}
    assert wrapped["ddp full"]["wrapped"] == "DistributedDataParallel"
    assert wrapped["fsdp full"]["wrapped"].startswith("FSDP")
    assert wrapped["fsdp full"]["units"] == 3
    assert wrapped["fsdp hybrid"]["mesh"] == [2, 1]
    assert [wrapped[f"zero{stage} full"]["stage"] for stage in (1, 2, 3)] == [1, 2, 3]
    assert wrapped["zero3 full"]["sharded_parameters"] > 0 == wrapped["zero2 full"]["sharded_parameters"]


def test_ddp_exchanges_each_gradient_once(together):
    result = together["ddp full"]
    loss_and_flag = 2 * 8  # two float64
    assert result["bytes"] == 4 * result["about"]["exchanged_parameters"] + loss_and_flag
    assert together["ddp accumulated"]["bytes"] == result["bytes"]


def test_fsdp_gathers_twice_and_reduces_once(together):
    whole = together["ddp full"]["bytes"]
    assert together["fsdp full"]["bytes"] == pytest.approx(3 * whole, rel=0.01)
    assert together["fsdp kept"]["bytes"] == pytest.approx(2 * whole, rel=0.01)


@pytest.fixture(scope="module")
def resumed(tiny_llama, tmp_path_factory):
    """(uninterrupted losses by strategy, runs that went on from half of it by (writer, reader))."""
    root = tmp_path_factory.mktemp("checkpoints")
    common = {"schedule": "constant"}
    jobs = [{"name": s, "steps": 6, "config": common | {"strategy": s}} for s in SHARDED]
    for s in SHARDED:
        config = common | {"strategy": s, "checkpoints": str(root / s), "save_every": 3}
        jobs.append({"name": f"{s} half", "steps": 3, "config": config})
    whole = run_jobs(tiny_llama, jobs, 2)
    again, alone = [], []
    for writer in SHARDED:
        for reader in (*SHARDED, "single"):
            folder = root / f"{writer}-{reader}"
            shutil.copytree(root / writer, folder)
            config = common | {"strategy": reader, "checkpoints": str(folder)}
            (alone if reader == "single" else again).append(
                {"name": f"{writer} {reader}", "steps": 6, "config": config}
            )
    return whole, run_jobs(tiny_llama, again, 2) | run_jobs(tiny_llama, alone, 1)


@pytest.mark.parametrize("reader", [*SHARDED, "single"])
@pytest.mark.parametrize("writer", SHARDED)
def test_any_strategy_goes_on_from_any_other(resumed, writer, reader):
    whole, again = resumed
    result = again[f"{writer} {reader}"]
    reference = whole["ddp" if reader == "single" else reader]
    assert len(result["norms"]) == 3, "three steps were left"
    assert result["losses"] == pytest.approx(reference["losses"], rel=1e-5)
    assert result["checksum"] == pytest.approx(reference["checksum"], rel=1e-6)


@pytest.mark.parametrize("strategy", SHARDED)
def test_resumed_equals_uninterrupted_bit_for_bit(resumed, strategy):
    whole, again = resumed
    assert again[f"{strategy} {strategy}"]["losses"] == whole[strategy]["losses"]
    assert again[f"{strategy} {strategy}"]["checksum"] == whole[strategy]["checksum"]
