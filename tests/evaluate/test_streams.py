"""Batches side by side on one CPU: the same results, in order, and nothing left changed."""

from __future__ import annotations

import threading

import pytest
import torch

from genaccel import models
from genaccel.evaluate.packing import Request, score_requests
from genaccel.evaluate.streams import in_streams

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_items_are_computed_at_once_each_with_its_share_of_threads():
    meeting = threading.Barrier(2)

    def work(item: int) -> tuple[int, int]:
        meeting.wait(timeout=30)
        return item, torch.get_num_threads()

    assert list(in_streams(work, range(6), CPU)) == [(i, 1) for i in range(6)]
    assert torch.get_num_threads() == 2


def test_one_thread_or_another_device_is_a_plain_map():
    caller = threading.current_thread()
    assert list(in_streams(lambda _: threading.current_thread(), range(2), torch.device("cuda"))) == [caller] * 2
    torch.set_num_threads(1)
    assert list(in_streams(lambda _: threading.current_thread(), range(2), CPU)) == [caller] * 2


def test_an_error_comes_in_its_turn_and_ends_it():
    begun = []

    def work(item: int) -> int:
        begun.append(item)
        if item == 3:
            raise ValueError("three")
        return item

    results = in_streams(work, range(1000), CPU)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
    assert max(begun) <= 6
    assert torch.get_num_threads() == 2


def test_a_caller_that_stops_leaves_no_thread_and_no_setting_behind():
    results = in_streams(lambda i: i, range(1000), CPU)
    assert next(results) == 0
    results.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("genaccel-stream")]
    assert torch.get_num_threads() == 2


def test_requests_score_the_same_as_on_one_thread(tiny_model):
    model = models.load(models.resolve(str(tiny_model))).model
    requests = [Request(tuple(range(2, 20 + i)), ((3, 4, 5), (6, 7))) for i in range(40)]
    both = dict(pair for batch in score_requests(model, requests, 4) for pair in batch)
    torch.set_num_threads(1)
    alone = dict(pair for batch in score_requests(model, requests, 4) for pair in batch)
    assert list(both) == list(alone)
    for index, sums in alone.items():
        assert both[index] == pytest.approx(sums, rel=1e-5)
