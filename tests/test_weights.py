"""Tensors by name from files and from memory, and folders that are not whole."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from genaccel.errors import UserError
from genaccel.weights import FolderWeights, ModelWeights

INDEX = "model.safetensors.index.json"
TENSORS = {
    "a.weight": torch.arange(6.0).view(2, 3),
    "b.weight": torch.arange(4.0).bfloat16(),
    "c.scalar": torch.tensor(3.0),
    "d.ids": torch.arange(3),
}


@pytest.fixture
def sharded(tmp_path):
    """Two shards and their index."""
    files = {"model-00001-of-00002.safetensors": ["a.weight"], "model-00002-of-00002.safetensors": list(TENSORS)[1:]}
    for file, names in files.items():
        save_file({n: TENSORS[n] for n in names}, tmp_path / file)
    weight_map = {name: file for file, names in files.items() for name in names}
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return tmp_path


def assert_same(weights) -> None:
    assert set(weights.names()) == set(TENSORS)
    for name, tensor in TENSORS.items():
        got = weights.get(name)
        assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
        assert torch.equal(got, tensor)


def test_one_file_and_many_hold_the_same(tmp_path, sharded):
    assert_same(FolderWeights(sharded))
    (tmp_path / "one").mkdir()
    save_file(TENSORS, tmp_path / "one" / "model.safetensors")
    assert_same(FolderWeights(tmp_path / "one"))


def test_a_single_file_of_any_name_will_do(tmp_path):
    save_file(TENSORS, tmp_path / "weights.safetensors")
    assert_same(FolderWeights(tmp_path))


@pytest.mark.parametrize("extra", ["consolidated.safetensors", "adapter_model.safetensors"])
def test_files_beside_the_models_own_are_left_alone(sharded, tmp_path, extra):
    """Hub folders carry the vendor's original layout and adapters too; transformers does not read them either."""
    save_file({"layers.0.wq": torch.ones(2), "a.weight": torch.zeros(2, 3)}, sharded / extra)
    assert_same(FolderWeights(sharded))
    for file in (*sharded.glob("model-*"), sharded / INDEX):
        file.unlink()
    save_file(TENSORS, sharded / "model.safetensors")
    assert_same(FolderWeights(sharded))


def test_only_some_names_may_be_kept(sharded):
    weights = FolderWeights(sharded)
    weights.keep_only({"a.weight", "d.ids", "elsewhere"})
    assert set(weights.names()) == {"a.weight", "d.ids"}


def test_a_missing_shard_is_told_by_one_of_its_tensors(sharded):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(UserError, match=r"lacks 3 tensors, among them b\.weight"):
        FolderWeights(sharded)


def test_a_tensor_that_the_index_promises_and_no_shard_holds_is_told(sharded):
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"]["e.weight"] = "model-00002-of-00002.safetensors"
    (sharded / INDEX).write_text(json.dumps(index))
    with pytest.raises(UserError, match=r"lacks 1 tensors, among them e\.weight"):
        FolderWeights(sharded)


@pytest.mark.parametrize(
    "text", ["", "not JSON", "[]", "{}", '{"weight_map": ["a.weight"]}', '{"weight_map": {"a": 1}}']
)
def test_an_index_that_is_none_is_named(sharded, text):
    (sharded / INDEX).write_text(text)
    with pytest.raises(UserError, match=r"model\.safetensors\.index\.json"):
        FolderWeights(sharded)


def test_one_tensor_in_two_files_is_refused(tmp_path):
    for name in ("one", "two"):
        save_file({"a.weight": torch.ones(1)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(UserError, match=r"a\.weight is in two files"):
        FolderWeights(tmp_path)


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_torn_file_is_named(tmp_path, length):
    file = tmp_path / "model.safetensors"
    save_file(TENSORS, file)
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(UserError, match=r"model\.safetensors is not a whole safetensors file"):
        FolderWeights(tmp_path)


def test_a_models_tensors_are_not_copied():
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    weights = ModelWeights(model)
    assert set(weights.names()) == set(model.state_dict())
    assert weights.get("0.weight").data_ptr() == model[0].weight.data_ptr()
