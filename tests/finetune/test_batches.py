"""Samples and steps: packing loses nothing, and a step is the same for every number of processes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.finetune.batches import DataPlan, pack, packed_batch, padded_batch, padded_batches
from genaccel.finetune.data import TokenizedData


def made(lengths, seed=0):
    """Examples of random tokens, the first third of each no target."""
    generator = np.random.default_rng(seed)
    marks = [np.arange(n) >= max(1, n // 3) for n in lengths]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = generator.integers(5, 1000, sum(lengths)).astype(np.int32)
    return TokenizedData(tokens, np.concatenate(marks), starts, "x")


LENGTHS = [5, 9, 3, 12, 7, 4, 11, 6, 8, 10, 2, 5]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_packing_keeps_every_example_within_its_row(lengths):
    rows = pack(lengths, 50)
    assert sorted(i for row in rows for i in row) == list(range(len(lengths)))
    assert all(sum(lengths[i] for i in row) <= 50 for row in rows)
    fills = sorted(sum(lengths[i] for i in row) for row in rows)
    assert len(rows) < 2 or fills[0] + fills[1] > 50, "two rows that fit into one were left apart"


def test_an_example_longer_than_a_row_is_refused():
    with pytest.raises(UserError, match="51 tokens"):
        pack([3, 51], 50)


def test_a_packed_row_restarts_positions_and_predicts_within_documents():
    data = made([3, 4])
    batch = packed_batch(data, [1, 0])
    assert batch.document_lengths == (4, 3)
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    ids = batch.input_ids[0].tolist()
    assert batch.targets.tolist() == [[*ids[1:4], -100, *ids[5:7], -100]]
    assert (batch.num_tokens, batch.num_targets) == (7, 5)


def test_padding_is_on_the_right_and_never_a_target():
    data = made([3, 6])
    batch = padded_batch(data, [0, 1])
    assert batch.input_ids.shape == (2, 6)
    assert batch.input_ids[0, 3:].tolist() == [0, 0, 0]
    assert batch.targets[0, 2:].tolist() == [-100] * 4
    assert batch.targets[1].tolist() == [-100, *batch.input_ids[1, 2:].tolist(), -100], "its prompt is two tokens"
    assert batch.num_tokens == 9
    assert batch.num_targets == int((batch.targets >= 0).sum())


def test_batches_of_held_out_examples_hold_each_once():
    data = made(LENGTHS)
    batches = padded_batches(data, 5)
    assert [b.input_ids.shape[0] for b in batches] == [5, 5, 2]
    assert sum(b.num_tokens for b in batches) == sum(LENGTHS)
    assert sum(b.num_targets for b in batches) == data.targets_by_example().sum()


def tokens_of(batches):
    """Every token with its target, in no order."""
    pairs = [
        (int(i), int(t))
        for b in batches
        for row, targets in zip(b.input_ids, b.targets, strict=True)
        for i, t in zip(row, targets, strict=True)
        if i
    ]
    return sorted(pairs)


@pytest.mark.parametrize("packing", [True, False])
@pytest.mark.parametrize(("world", "size"), [(1, 4), (1, 1), (2, 2), (2, 1), (4, 1)])
def test_a_step_is_the_same_for_every_number_of_processes(packing, world, size):
    data = made(LENGTHS)
    alone = DataPlan(data, 14, packing, 4, seed=3)
    plan = DataPlan(data, 14, packing, 4, seed=3)
    for step in range(7):
        whole = list(alone.micro_batches(step, 0, 1, 4))
        parts = [b for rank in range(world) for b in plan.micro_batches(step, rank, world, size)]
        assert len(parts) == 4 // size
        assert tokens_of(parts) == tokens_of(whole)
        assert sum(b.num_targets for b in parts) == plan.num_targets_of_step(step)
        assert sum(b.num_tokens for b in parts) == sum(plan.document_lengths_of_step(step))


@pytest.mark.parametrize("packing", [True, False])
def test_every_epoch_holds_every_example_once_in_another_order(packing):
    data = made(LENGTHS)
    plan = DataPlan(data, 14, packing, 1, seed=0)
    first = [i for s in range(plan.num_samples) for i in plan.examples_of_step(s)]
    assert sorted(first) == list(range(len(LENGTHS)))
    other = DataPlan(data, 14, packing, 1, seed=1)
    assert [i for s in range(other.num_samples) for i in other.examples_of_step(s)] != first


def test_a_step_may_end_one_epoch_and_begin_the_next():
    plan = DataPlan(made(LENGTHS), 14, False, 5, seed=0)
    seen = [i for s in range(12) for i in plan.examples_of_step(s)]
    assert all(sorted(seen[e * 12 : (e + 1) * 12]) == list(range(12)) for e in range(5))


def test_a_global_batch_of_more_than_there_is():
    with pytest.raises(UserError, match="13 is more than the 12 examples"):
        DataPlan(made(LENGTHS), 14, False, 13, seed=0)


def test_a_batch_moves_whole():
    moved = packed_batch(made([3, 4]), [0]).to(torch.device("meta"))
    assert {t.device.type for t in (moved.input_ids, moved.position_ids, moved.targets)} == {"meta"}
