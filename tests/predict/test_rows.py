"""Rows of published tables: what 'tokens/s' counts, how cards are divided, what is refused and why."""

from __future__ import annotations

import csv

import pytest

from genaccel.errors import UserError
from genaccel.predict.memory_rows import predicted_memory
from genaccel.predict.rows import INFERENCE_COLUMNS, TRAINING_COLUMNS, read_rows

SERVED = {
    "source": "argonne-lcf/LLM-Inference-Bench",
    "workload": "llm_inference_e2e",
    "model": "mistralai/Mistral-7B-v0.1",
    "params_b": "7.24",
    "device": "H100-SXM",
    "cards": "2",
    "precision": "fp16/bf16 (unstated)",
    "batch": "16",
    "prompt_len": "128",
    "new_tokens": "128",
    "metric": "total_token_throughput",
    "value": "4096",
    "unit": "tokens/s",
    "notes": "framework=vLLM",
}
TUNED = {
    "source": "llm-foundry MPT benchmarks",
    "model": "MPT-7b",
    "params_b": "6.659",
    "method": "full (pretrain)",
    "strategy": "fsdp1_full_shard",
    "cards": "8",
    "device": "h100_80gb",
    "precision": "amp_bf16",
    "seq_len": "2048",
    "global_batch": "128",
    "flash_attention": "yes",
    "metric": "tokens_per_s_per_gpu",
    "value": "8192",
    "unit": "tokens/s/GPU",
    "notes": "micro 4, act_ckpt True",
}


@pytest.fixture
def table(tmp_path):
    """Write rows with columns to a file and read it."""

    def write(columns, *rows, name="rows.csv"):
        path = tmp_path / name
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


def only(table, columns, **changed):
    base = SERVED if columns is INFERENCE_COLUMNS else TUNED
    (row,) = read_rows(table(columns, base | changed))
    return row


@pytest.mark.parametrize(
    ("changed", "seconds"),
    [
        ({}, 16 * 256 / 4096),  # prompt and new tokens
        ({"metric": "new_token_throughput"}, 16 * 128 / 4096),
        ({"metric": "output_token_throughput_per_gpu", "unit": "tokens/s/gpu"}, 16 * 128 / 4096 / 2),
        ({"metric": "offline_samples_per_second", "unit": "samples/s"}, 16 / 4096),
        ({"metric": "ttft", "unit": "ms", "value": "50"}, 0.05),
        ({"metric": "decode_latency_per_token", "unit": "ms", "value": "50"}, 0.05),
    ],
)
def test_what_a_rate_of_generation_counts(table, changed, seconds):
    row = only(table, INFERENCE_COLUMNS, **changed)
    assert row.question.seconds(row.value) == pytest.approx(seconds)
    assert row.question.value(seconds) == pytest.approx(row.value)


def test_what_a_rate_of_training_counts(table):
    row = only(table, TRAINING_COLUMNS)
    assert row.question.seconds(row.value) == pytest.approx(128 * 2048 / (8 * 8192))
    step = row.question.asked
    assert (step.strategy, step.micro_batch, step.accumulation, step.checkpointing) == ("fsdp", 4, 4, 1)
    samples = only(table, TRAINING_COLUMNS, metric="train_samples_per_second", value="64")
    assert samples.question.seconds(64) == pytest.approx(2)


def test_cards_are_divided_as_the_strategy_says(table):
    step = only(table, TRAINING_COLUMNS, strategy="megatron tp4 pp8", cards="64", notes="").question.asked
    assert (step.tensor, step.pipeline, step.copies, step.accumulation) == (4, 8, 2, 64)


TORCHTUNE = {"source": "torchtune README", "model": "Llama-3.1-8B", "params_b": "8.03", "cards": "1"}
TORCHTUNE |= {"precision": "bf16", "strategy": "single", "global_batch": "2", "metric": "peak_memory", "unit": "GiB"}


def test_recipes_of_optimum_habana_are_read_as_its_files_say(table):
    """Without the flash kernel its context parallelism is no exchange but shorter attention; adapters log every step."""
    test = TUNED | {
        "source": "optimum-habana test baseline", "device": "gaudi3", "model": "huggyllama/llama-7b", "params_b": "6.74",
        "flash_attention": "no", "precision": "bf16", "metric": "train_samples_per_second", "unit": "samples/s", "notes": "",
    }  # fmt: skip
    shared = test | {"method": "lora", "strategy": "zero1+cp4", "seq_len": "2048", "global_batch": "64"}
    adapted = shared | {"strategy": "ddp", "seq_len": "512", "global_batch": "256"}
    narrow, full = adapted | {"precision": "fp8"}, adapted | {"method": "full"}
    rows = read_rows(table(TRAINING_COLUMNS, shared, adapted, narrow, full, shared | {"flash_attention": "yes"}))
    parts, adapted, narrow, full, whole = (row.question for row in rows)
    assert (parts.asked.length, parts.asked.context, parts.asked.micro_batch, parts.asked.accumulation) == (
        512,
        1,
        8,
        4,
    )
    assert parts.value(2.0) == pytest.approx(32)  # of the 2,048 tokens that the row counts
    assert adapted.value(2.0) == pytest.approx(128)
    assert (whole.asked.length, whole.asked.context, whole.value(2.0)) == (2048, 4, pytest.approx(32))
    assert [q.asked.watched for q in (parts, adapted, narrow, full)] == [True, True, False, False]


def test_a_cumulative_ablation_has_what_earlier_rows_added(table):
    notes = "cumulative ablation: +optimizer in bwd"
    step = only(table, TRAINING_COLUMNS, **TORCHTUNE, device="A100", method="full", notes=notes).question.asked
    assert (step.compiled, step.checkpointing, step.fewer_updates) == (True, 1, True)
    first = only(table, TRAINING_COLUMNS, **TORCHTUNE, device="A100", notes="cumulative ablation: +packed")
    assert (first.question.asked.compiled, first.question.asked.checkpointing) == (False, 0)


def test_adapters_of_torchtune_recompute_what_does_not_fit(table):
    again = {
        device: only(table, TRAINING_COLUMNS, **TORCHTUNE, device=device, method="lora", notes="compile")
        for device in ("RTX4090", "A6000")
    }
    assert [row.question.asked.checkpointing for row in again.values()] == [1, 0]
    assert predicted_memory(again["RTX4090"])[0] < 24 < predicted_memory(again["A6000"])[0] < 48


def test_time_to_train_counts_evaluations(table):
    notes = "median final samples 3072.0"
    row = only(table, TRAINING_COLUMNS, source="MLPerf Training v4.0", metric="time_to_train", notes=notes, value="28")
    assert 3072 / row.question.asked.samples < row.question.factor * 60 < 1.3 * 3072 / row.question.asked.samples


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"value": "0"}, "no positive value"),
        ({"value": "fast"}, "no positive value"),
        ({"device": "Abacus"}, "Abacus is not in the catalogue"),
        ({"model": "mystery", "params_b": ""}, "size of mystery"),
        ({"model": "state-spaces/mamba-130m-hf"}, "state-space"),
        ({"new_tokens": ""}, "how many tokens"),
        ({"metric": "happiness", "unit": "smiles"}, "happiness"),
    ],
)
def test_what_cannot_be_predicted_says_why(table, changed, why):
    row = only(table, INFERENCE_COLUMNS, **changed)
    assert row.question is None
    assert why in row.problem


def test_suspect_rows_are_marked(table):
    assert only(table, INFERENCE_COLUMNS, notes="framework=vLLM; SUSPECT: copied").suspect


def test_missing_columns_are_named_and_others_ignored(table):
    with pytest.raises(UserError, match="no column batch"):
        read_rows(table([c for c in INFERENCE_COLUMNS if c != "batch"], SERVED))
    (row,) = read_rows(table([*INFERENCE_COLUMNS, "colour"], SERVED | {"colour": "red"}, name="more.csv"))
    assert row.question is not None


def test_an_unknown_model_of_known_size_is_predicted_and_says_so(table):
    row = only(table, INFERENCE_COLUMNS, model="lab/Unheard-9B", params_b="9.1")
    assert row.question.asked.model.approximate
    assert row.question.warnings
