"""Log-probabilities of chosen tokens against whole logits, whatever the head."""

from __future__ import annotations

import pytest
import torch

from genaccel import models
from genaccel.evaluate import scoring
from genaccel.evaluate.scoring import has_plain_head, log_probabilities_at, target_log_probabilities

IDS = torch.arange(2, 98).view(3, 32)


def loaded(folder):
    return models.load(models.resolve(str(folder))).model


@torch.inference_mode()
def whole_logits(model) -> torch.Tensor:
    """fp64 log p of every token everywhere."""
    return model(input_ids=IDS).logits.double().log_softmax(-1)


@pytest.mark.parametrize("rows", [128, 5])
@pytest.mark.parametrize("num_targets", [1, 7, 31])
def test_targets_equal_whole_logits(tiny_model, num_targets, rows, monkeypatch):
    monkeypatch.setattr(scoring, "HEAD_ROWS", rows)
    model = loaded(tiny_model)
    expected = whole_logits(model)[:, :-1].gather(-1, IDS[:, 1:, None])[..., 0][:, -num_targets:]
    found = target_log_probabilities(model, IDS, num_targets)
    assert found.shape == (3, num_targets)
    assert torch.allclose(found.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("rows", [128, 2])
def test_candidates_at_given_places_equal_whole_logits(tiny_model, rows, monkeypatch):
    monkeypatch.setattr(scoring, "HEAD_ROWS", rows)
    model = loaded(tiny_model)
    at = torch.tensor([[0, 3], [2, 31], [1, 0], [0, 3], [2, 7]])
    targets = [[5], [1, 2, 3], [257], [6, 5], [0]]
    log_p = whole_logits(model)
    expected = [
        float(log_p[row, column, t]) for (row, column), wanted in zip(at.tolist(), targets, strict=True) for t in wanted
    ]
    assert log_probabilities_at(model, IDS, at, targets).tolist() == pytest.approx(expected, abs=1e-5)


def test_the_shortcut_is_taken_where_logits_are_the_head_of_the_decoder(request):
    plain = {n: has_plain_head(loaded(request.getfixturevalue(n))) for n in ("tiny_llama", "tiny_qwen2", "tiny_gpt2")}
    assert plain == {"tiny_llama": True, "tiny_qwen2": True, "tiny_gpt2": True}
    assert not has_plain_head(loaded(request.getfixturevalue("tiny_gemma2")))


@pytest.mark.parametrize("cap", [3.0, 30.0, 100.0])
def test_a_soft_cap_that_hardly_bites_is_still_seen(tiny_gemma2, cap):
    """A cap of 30, as published, changes these small logits by less than a hundredth; scores must have it all the same."""
    model = loaded(tiny_gemma2)
    model.config.final_logit_softcapping = cap
    expected = whole_logits(model)[:, :-1].gather(-1, IDS[:, 1:, None])[..., 0]
    assert torch.allclose(target_log_probabilities(model, IDS, 31).double(), expected, rtol=0, atol=1e-5)


def test_a_scaled_logit_is_seen(tiny_llama):
    """Cohere and Granite multiply or divide their logits behind the head."""
    model = loaded(tiny_llama)
    forward = model.forward

    def scaled(**inputs):
        output = forward(**inputs)
        output.logits = output.logits * 1.002
        return output

    model.forward = scaled
    assert not has_plain_head(model)


def test_it_is_tried_once_a_model(tiny_llama, monkeypatch):
    model = loaded(tiny_llama)
    calls = []
    tried = scoring._try_plain_head
    monkeypatch.setattr(scoring, "_try_plain_head", lambda m: calls.append(m) or tried(m))
    assert has_plain_head(model)
    assert has_plain_head(model)
    assert len(calls) == 1


def test_the_heads_bias_is_not_forgotten(tiny_llama_untied):
    model = loaded(tiny_llama_untied)
    model.lm_head.bias = torch.nn.Parameter(torch.randn(258, generator=torch.Generator().manual_seed(0)))
    expected = whole_logits(model)[:, :-1].gather(-1, IDS[:, 1:, None])[..., 0]
    assert has_plain_head(model)
    assert torch.allclose(target_log_probabilities(model, IDS, 31).double(), expected, rtol=0, atol=1e-5)


def test_no_logits_are_computed_where_none_are_scored(tiny_gemma2, monkeypatch):
    """Behind a soft cap the model's own forward is used, but its head sees the scored columns alone."""
    model = loaded(tiny_gemma2)
    assert not has_plain_head(model)
    seen = []
    model.lm_head.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[:2]))
    target_log_probabilities(model, IDS, 7)
    log_probabilities_at(model, IDS, torch.tensor([[0, 3], [2, 31], [1, 3]]), [[5], [1], [2]])
    assert [tuple(s) for s in seen] == [(3, 7), (3, 2)]


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_model_that_gives_no_numbers_takes_its_own_way(tiny_llama, broken):
    model = loaded(tiny_llama)
    torch.nn.init.constant_(model.model.norm.weight, broken)
    assert not has_plain_head(model)
    assert not torch.isfinite(target_log_probabilities(model, IDS, 3)).any()


def test_a_large_vocabulary_is_summed_without_bias():
    """torch's fp32 log_softmax on a CPU with AVX2 is 2e-6 off on these logits, on the average, always to one side."""
    logits = 3 * torch.randn(64, 49_152, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(64)
    exact = logits.double().log_softmax(-1)[torch.arange(64), targets]
    error = scoring._pick(logits, targets).double() - exact
    assert float(error.abs().max()) < 4e-6
    assert abs(float(error.mean())) < 5e-7
