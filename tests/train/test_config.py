"""What cannot work is said before anything begins."""

from __future__ import annotations

import pytest

from genaccel.errors import UserError
from genaccel.train.config import TrainConfig


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"strategy": "zero4"}, "no strategy 'zero4'"),
        ({"processes": 2}, "single cannot use 2 processes"),
        ({"strategy": "ddp", "processes": 3}, "8 samples cannot be split over 3 processes"),
        ({"strategy": "ddp", "processes": 16}, "8 samples cannot be split over 16"),
        ({"micro_batch": 3}, "micro batches of 3"),
        ({"steps": 0}, "--steps is 0"),
        ({"keep": 0}, "--keep is 0"),
        ({"clip": -1.0}, "--clip is -1"),
        ({"strategy": "fsdp"}, "fsdp needs at least two processes"),
        ({"shard_processes": 2}, "only used with --strategy fsdp"),
        ({"strategy": "fsdp", "processes": 4, "shard_processes": 3}, "groups of 3"),
    ],
)
def test_a_value_that_cannot_work_is_named(given, words):
    with pytest.raises(UserError) as caught:
        TrainConfig(**given).check()
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("given", "size"),
    [({}, 8), ({"strategy": "ddp", "processes": 2}, 4), ({"strategy": "ddp", "processes": 2, "micro_batch": 1}, 1)],
)
def test_the_micro_batch_is_a_processs_part_unless_it_is_given(given, size):
    config = TrainConfig(**given)
    config.check()
    assert config.micro_batch_size == size
