"""Paths of models in a report are as short as tells them apart."""

from __future__ import annotations

import pytest
from tests.made_records import fp32

from genaccel.report.names import short_paths, with_short_names


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["/data/models/llama", "smollm2-135m", "owner/llama2"], {"/data/models/llama": "llama"}),
        (["/a/x/llama", "/b/x/llama"], {"/a/x/llama": "a/x/llama", "/b/x/llama": "b/x/llama"}),
        (["./out/model", "model"], {"./out/model": "out/model"}),
        (["/llama"], {"/llama": "llama"}),
        (["/"], {"/": "/"}),
        (["x/llama", "/a/x/llama"], {"/a/x/llama": "a/x/llama"}),
    ],
)
def test_ends_of_paths(names, short):
    assert short_paths(names) == short


def test_labels_follow_and_everything_else_stays():
    given = fp32(model="/data/llama", label="/data/llama fp32")
    (shown,) = with_short_names([given])
    assert (shown.model, shown.label, shown.id) == ("llama", "llama fp32", given.id)
