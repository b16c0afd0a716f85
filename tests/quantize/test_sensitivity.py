"""Metrics on whole models: beside numpy for the magnitudes, beside a plain loop for pruning."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from genaccel import devices, models
from genaccel.corpora import load_corpus
from genaccel.errors import UserError
from genaccel.plans import load_sensitivity
from genaccel.quantize.sensitivity import METRICS, SensitivitySettings, measure_sensitivity

TEXT = "It is a truth universally acknowledged, that a single man in possession of a good fortune must want. " * 8


def measured(folder, metric: str, **settings):
    source = models.resolve(str(folder))
    layout = models.layout_of(source)
    weights = models.open_weights(source, layout)
    return measure_sensitivity(source, layout, weights, metric, devices.get("cpu"), SensitivitySettings(**settings))


def matrices_by_layer(model) -> list[dict[str, torch.nn.Parameter]]:
    """Every 2-D parameter inside the two decoder layers, found without our layouts."""
    layers = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    return [{n: p for n, p in layer.named_parameters() if p.ndim == 2} for layer in layers]


@pytest.mark.parametrize("p", [0.3, 0.05])
def test_magnitude_is_the_share_above_one_threshold_for_all(tiny_model, p):
    report = measured(tiny_model, "magnitude", pruned_share=p)
    model = models.load(models.resolve(str(tiny_model))).model
    layers = [
        np.concatenate([np.abs(w.detach().numpy()).ravel() for w in named.values()])
        for named in matrices_by_layer(model)
    ]
    everything = np.sort(np.concatenate(layers))
    tau = everything[int(p * len(everything))]
    assert report.settings == {"pruned_share": p, "threshold": float(tau)}
    assert [s.score for s in report.scores] == pytest.approx([float((a >= tau).mean()) for a in layers], abs=1e-12)
    assert [s.num_weights for s in report.scores] == [len(a) for a in layers]
    assert [s.layer for s in report.scores] == [0, 1]


def test_embedding_head_norms_and_biases_do_not_count(tiny_llama_untied, tmp_path):
    """The study scores transformer layers, from projection matrices alone."""
    shutil.copytree(tiny_llama_untied, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    changed = {n: t if "_proj.weight" in n else t * 100 for n, t in tensors.items()}
    save_file(changed, tmp_path / "m" / "model.safetensors", metadata={"format": "pt"})
    assert measured(tmp_path / "m", "magnitude").scores == measured(tiny_llama_untied, "magnitude").scores


@pytest.mark.parametrize("name", ["tiny_llama", "tiny_gpt2"])
def test_pruned_loss_is_the_rise_of_a_plain_loops_loss(request, tmp_path, name):
    folder = request.getfixturevalue(name)
    (tmp_path / "text.txt").write_text(TEXT)
    report = measured(
        folder, "pruned_loss", pruned_share=0.4, text=str(tmp_path / "text.txt"), num_windows=3, window=64
    )
    loaded = models.load(models.resolve(str(folder)))
    ids = torch.tensor(loaded.tokenizer(TEXT, add_special_tokens=False).input_ids[: 3 * 64]).view(3, 64)

    @torch.inference_mode()
    def loss() -> float:
        return float(loaded.model(input_ids=ids, labels=ids).loss)

    intact = loss()
    expected = []
    for named in matrices_by_layer(loaded.model):
        originals = {n: p.detach().clone() for n, p in named.items()}
        magnitudes = np.sort(np.concatenate([p.detach().abs().numpy().ravel() for p in named.values()]))
        with torch.no_grad():
            for p in named.values():
                p[p.abs() < float(magnitudes[int(0.4 * len(magnitudes))])] = 0
        expected.append(loss() - intact)
        with torch.no_grad():
            for n, p in named.items():
                p.copy_(originals[n])
    assert report.settings["intact_loss"] == pytest.approx(intact, rel=1e-5)
    assert [s.score for s in report.scores] == pytest.approx(expected, abs=1e-5)
    assert min(map(abs, expected)) > 1e-3  # the test would see a layer that was not pruned
    assert (report.settings["num_windows"], report.settings["window"]) == (3, 64)


def test_pruning_is_calibrated_on_text_that_the_model_is_not_judged_by(tiny_llama):
    report = measured(tiny_llama, "pruned_loss", window=32, num_windows=1)
    assert report.settings["text_sha256"] == load_corpus("pydoc", "calibration").sha256
    assert report.settings["text_sha256"] != load_corpus("pydoc", "test").sha256


def test_pruned_loss_says_when_the_text_is_too_short_and_keeps_to_the_context(tiny_llama, tmp_path):
    (tmp_path / "text.txt").write_text("short")
    with pytest.raises(UserError, match="has 5 tokens, fewer than one window of 64"):
        measured(tiny_llama, "pruned_loss", text=str(tmp_path / "text.txt"), window=64)
    # No option of the command line sets this window, so it gives way to the model; the report says what was used.
    assert measured(tiny_llama, "pruned_loss", window=129, num_windows=1).settings["window"] == 128


@pytest.mark.parametrize("metric", METRICS)
def test_the_same_twice_gives_the_same_and_survives_its_file(tiny_llama, tmp_path, metric):
    first, second = (measured(tiny_llama, metric, window=32, num_windows=2) for _ in range(2))
    assert first == second
    first.save(tmp_path / "s.json")
    assert load_sensitivity(tmp_path / "s.json") == first
    assert (first.metric, first.model) == (metric, str(tiny_llama))


def test_scoring_leaves_the_files_alone(tiny_llama):
    before = (tiny_llama / "model.safetensors").read_bytes()
    for metric in METRICS:
        measured(tiny_llama, metric, window=32, num_windows=1)
    assert (tiny_llama / "model.safetensors").read_bytes() == before


def test_an_unknown_metric_offers_the_nearest(tiny_llama):
    with pytest.raises(UserError) as caught:
        measured(tiny_llama, "magnitudes")
    assert caught.value.hint == "Did you mean magnitude?"


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize("metric", METRICS)
def test_a_share_that_prunes_nothing_or_all_is_refused(tiny_llama, metric, share):
    with pytest.raises(UserError, match="pruned share"):
        measured(tiny_llama, metric, pruned_share=share, window=32, num_windows=1)
