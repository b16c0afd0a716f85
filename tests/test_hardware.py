"""The catalogue of accelerators: read strictly, pairs as the study has them."""

from __future__ import annotations

from importlib import resources

import pytest

from genaccel import devices, hardware, shapes
from genaccel.errors import UserError
from genaccel.plans import FORMATS


@pytest.fixture
def catalogue(tmp_path, monkeypatch):
    """A catalogue of its own, read anew."""
    folder = tmp_path / "catalogue" / "accelerators"
    folder.mkdir(parents=True)
    monkeypatch.setattr(hardware.resources, "files", lambda _: tmp_path)
    hardware.accelerators.cache_clear()
    yield folder
    hardware.accelerators.cache_clear()


@pytest.mark.parametrize(
    ("name", "runtime", "high", "low"),
    [("a100", "cuda", "fp16", "int8"), ("gaudi2", "hpu", "bf16", "fp8_e4m3"), ("cpu", "cpu", "bf16", "int8")],
)
def test_targets_have_the_studys_pairs(name, runtime, high, low):
    found = hardware.find_target(name)
    assert (found.name, found.runtime) == (name, runtime)
    assert found.quantize == hardware.PrecisionPair(high, low)


def test_every_file_is_found_and_everything_it_names_exists():
    folder = resources.files("genaccel").joinpath("catalogue/accelerators")
    assert {f.name.removesuffix(".toml") for f in folder.iterdir()} == set(hardware.accelerators())
    for item in hardware.accelerators().values():
        assert item.runtime in (*devices.NAMES, "none")
    for item in hardware.targets().values():
        assert {item.pair.high, item.pair.low} <= set(FORMATS)


def test_an_unknown_target_offers_the_nearest():
    with pytest.raises(UserError) as caught:
        hardware.find_target("gaudi")
    assert caught.value.message == "There is no target 'gaudi'."
    assert "gaudi2" in caught.value.hint


def test_a_card_without_a_pair_is_no_target():
    with pytest.raises(UserError) as caught:
        hardware.find_target("h100")
    assert "no pair of precisions" in caught.value.message
    assert "a100" in caught.value.hint
    assert "h100" not in hardware.targets()


GOOD = 'name = "x1"\ndescription = "X"\nruntime = "cuda"\n[quantize]\nhigh = "fp16"\nlow = "int8"\n'


def test_a_new_accelerator_is_one_file(catalogue):
    (catalogue / "x1.toml").write_text(GOOD)
    (catalogue / "notes.txt").write_text("not TOML [")
    assert hardware.find_target("x1").description == "X"


def test_an_accelerator_by_name_or_by_file(tmp_path):
    assert hardware.find_accelerator("H100").name == "h100"
    (tmp_path / "x1.toml").write_text(GOOD)
    assert hardware.find_accelerator(str(tmp_path / "x1.toml")).name == "x1"
    with pytest.raises(UserError, match=r"no accelerator 'h1000'. .Did you mean h100"):
        hardware.find_accelerator("h1000")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder of one's own beside the catalogue."""
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "models").mkdir()
    monkeypatch.setenv(hardware.USER_FOLDER, str(tmp_path))
    for table in (hardware.accelerators, shapes.model_shapes):
        table.cache_clear()
    yield tmp_path
    for table in (hardware.accelerators, shapes.model_shapes):
        table.cache_clear()


def test_files_of_ones_own_join_the_catalogue(own):
    (own / "accelerators" / "any.toml").write_text(GOOD)
    small = 'name = "small"\nsource = "mine"\ntied_embeddings = true\ngated_mlp = true\n'
    sizes = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads", "head_dim", "vocab_size")
    (own / "models" / "small.toml").write_text(small + "".join(f"{size} = 8\n" for size in sizes))
    assert hardware.find_target("x1").description == "X"
    assert {"x1", "a100"} <= set(hardware.accelerators())
    assert shapes.find_shape("small").num_layers == 8


def test_a_file_of_ones_own_may_not_take_a_known_name(own):
    (own / "accelerators" / "any.toml").write_text(GOOD.replace("x1", "a100"))
    with pytest.raises(UserError, match=r"any.toml describes a100, which is there already"):
        hardware.accelerators()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("runtime", "runtme", "unknown key 'runtme' (Did you mean runtime"),
        ('low = "int8"\n', "", "'low'"),
        ('"cuda"', '"tpu"', "tpu"),
        ('"X"', "4", "4 is not str"),
        ('name = "x1"', 'name = "x1', "is no TOML"),
    ],
)
def test_a_wrong_file_is_named(catalogue, old, new, sentence):
    (catalogue / "x1.toml").write_text(GOOD.replace(old, new))
    with pytest.raises(UserError) as caught:
        hardware.accelerators()
    assert "x1.toml" in caught.value.message
    assert sentence in caught.value.message
