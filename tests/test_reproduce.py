"""The study's cells, and that an interrupted study goes on where it stopped."""

from __future__ import annotations

import pytest

from genaccel import reproduce
from genaccel.evaluate.config import JudgeConfig
from genaccel.reproduce import dust_study, judges_of, quantization_study
from genaccel.superres.synthetic import synthetic_dust


def small(tmp_path) -> JudgeConfig:
    text = tmp_path / "text.txt"
    text.write_text("All happy families are alike; every unhappy family is unhappy in its own way. " * 20)
    return JudgeConfig(text=str(text), window=32, limit=2, prompt_tokens=4, new_tokens=2, repeats=2)


def test_the_built_in_text_and_wikitext2_where_data_is_given(tmp_path, monkeypatch):
    monkeypatch.delenv("GENACCEL_DATA", raising=False)
    assert [(j.text, j.speed) for j in judges_of(JudgeConfig())] == [("pydoc", True)]
    assert [(j.text, j.speed) for j in judges_of(JudgeConfig(data_dir=tmp_path))] == [
        ("pydoc", True),
        ("wikitext2", False),
    ]
    assert judges_of(JudgeConfig(text="x", data_dir=tmp_path)) == [JudgeConfig(text="x", data_dir=tmp_path)]


def test_every_cell_leaves_a_record_and_is_not_run_twice(tiny_llama, tmp_path, monkeypatch):
    judge, runs = small(tmp_path), tmp_path / "runs"
    records = quantization_study([str(tiny_llama)], [0.0, 1.0], ["cpu"], judge, runs)
    cells = [(r.target, r.mode, r.config["share"].value) for r in records if r.mode != "fp32"]
    assert cells == [
        (target, mode, share)
        for target, mode in (("cpu", "fake"), ("cpu", "real"), ("a100", "fake"), ("gaudi2", "fake"))
        for share in (0.0, 1.0)
    ]
    assert [r.mode for r in records].count("fp32") == 1

    # Lose one cell, as if the study had been interrupted there: only that one is run again.
    lost = records[-1]
    next(runs.glob(f"*{lost.id}.json")).unlink()
    ran = []
    monkeypatch.setattr(reproduce, "run", lambda p, run=reproduce.run: ran.append(p.config.target) or run(p))
    again = quantization_study([str(tiny_llama)], [0.0, 1.0], ["cpu"], judge, runs)
    assert ran == ["gaudi2"]
    assert {r.id for r in records} - {r.id for r in again} == {lost.id}


def test_more_high_layers_cost_more_bytes(tiny_llama, tmp_path):
    records = quantization_study([str(tiny_llama)], [0.0, 0.5, 1.0], ["cpu"], small(tmp_path), tmp_path / "runs")
    sizes = [r.figure("tensor_bytes").value for r in records if (r.target, r.mode) == ("cpu", "real")]
    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 3


@pytest.mark.slow
def test_dust_is_trained_and_judged_once(tmp_path, monkeypatch):
    def few_maps(names):
        assert names == ("builtin",)
        return synthetic_dust(15, 64)

    monkeypatch.setattr("genaccel.superres.run.load_maps", few_maps)
    monkeypatch.setattr("genaccel.superres.files.load_maps", few_maps)
    trained, judged = dust_study(0.02, tmp_path)
    assert trained.figure("train_images_per_second").value > 0
    assert len(judged.details["maps"]) == 3
    assert not set(judged.details["maps"]) & set(trained.details["maps"]["train"])
    assert judged.figure("diffusion_crps").value > 0
    assert [r.id for r in dust_study(0.02, tmp_path)] == [trained.id, judged.id]
