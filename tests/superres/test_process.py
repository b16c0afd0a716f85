"""Processes against closed forms: on Gaussian data the best network is known, and samples must have the data's law.

For x ~ N(m, s²) pixel by pixel, the denoiser, velocity and noise predictor are linear; with these exact networks every
sampler must give back mean and spread, within its discretization.
"""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from genaccel.errors import UserError
from genaccel.superres.process import EDM, SR3, OneGenerator, RectifiedFlow, find_process

M, S = 0.7, 0.4


def exact_flow(x, t, c, mean=M, variance=S**2):
    """E[x - ε | x_t]: both are linear in x_t = (1 - t) ε + t x."""
    t = t.reshape(-1, 1, 1, 1)
    total = (1 - t) ** 2 + t**2 * variance
    left = x - t * mean
    return mean + (t * variance / total) * left - ((1 - t) / total) * left


def exact_edm(process):
    def network(scaled, c_noise, c):
        """F such that D is the posterior mean of x given x + σ ε."""
        sigma = torch.exp(4 * c_noise).reshape(-1, 1, 1, 1)
        total = (sigma**2 + process.σ_data**2).sqrt()
        x = scaled * total
        best = M + S**2 / (S**2 + sigma**2) * (x - M)
        return (best - (process.σ_data / total) ** 2 * x) / (sigma * process.σ_data / total)

    return network


def exact_sr3(process):
    def network(x, t, c):
        alpha = process.ᾱ(t).reshape(-1, 1, 1, 1)
        variance = alpha * S**2 + 1 - alpha
        return (1 - alpha).sqrt() / variance * (x - alpha.sqrt() * M)

    return network


CASES = [
    ("rectified-flow", RectifiedFlow(), exact_flow, 20, 0.01),
    ("edm", EDM(), exact_edm(EDM()), 40, 0.02),
    ("sr3", SR3(), exact_sr3(SR3()), 100, 0.03),
]


@pytest.mark.parametrize(("name", "process", "network", "steps", "tolerance"), CASES, ids=[c[0] for c in CASES])
def test_samples_of_the_exact_network_have_the_datas_mean_and_spread(name, process, network, steps, tolerance):
    noise = torch.randn(64, 1, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    x = process.sample(network, noise, torch.zeros_like(noise), steps)
    assert x.mean().item() == pytest.approx(M, abs=tolerance)
    assert x.std().item() == pytest.approx(S, rel=2 * tolerance)


@pytest.mark.parametrize(("name", "process", "network", "steps", "tolerance"), CASES, ids=[c[0] for c in CASES])
def test_the_exact_network_has_the_least_loss(name, process, network, steps, tolerance):
    x = M + S * torch.randn(4000, 1, 2, 2, generator=torch.Generator().manual_seed(1)).double()

    def loss(change):
        def changed(*arguments):
            return network(*arguments) + change

        return process.loss(changed, x, x, OneGenerator(torch.Generator().manual_seed(2))).mean().item()

    assert loss(0.0) < min(loss(0.1), loss(-0.1))


def test_ten_steps_are_no_worse_than_fifty():
    """For the straight paths of rectified flow, on Gaussian data."""
    noise = torch.randn(64, 1, 32, 32, generator=torch.Generator().manual_seed(0)).double()
    spread = [RectifiedFlow().sample(exact_flow, noise, noise, n).std().item() for n in (10, 50)]
    assert abs(spread[0] - S) < abs(spread[1] - S) + 0.01


@pytest.mark.parametrize("variance", [1.5, 1.0, 0.3, 0.1, 0.02, 0.005])
def test_ten_steps_keep_the_power_of_small_scales(variance):
    """Small scales of a map have a small part of its variance, which coarse last steps would lose."""
    exact = partial(exact_flow, mean=0.0, variance=variance)
    noise = torch.ones(1, 1, 1, 1).double()
    power = [RectifiedFlow().sample(exact, noise, noise, n).item() ** 2 / variance for n in (10, 50)]
    assert power[0] == pytest.approx(1, abs=0.05)
    assert power[1] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("steps", [1, 2, 10])
def test_rectified_flow_evaluates_its_network_once_a_step(steps):
    times = []

    def counting(x, t, c):
        times.append(t[0].item())
        return exact_flow(x, t, c)

    noise = torch.zeros(1, 1, 2, 2)
    assert RectifiedFlow().sample(counting, noise, noise, steps).isfinite().all()
    assert len(times) == steps
    assert times[0] == 0
    assert times == sorted(times)


def test_the_signal_of_sr3_goes_from_all_to_nothing():
    t = torch.tensor([0.0, 0.25, 0.5, 1.0])
    alpha = SR3().ᾱ(t)
    assert alpha[0] == pytest.approx(1)
    assert bool((alpha.diff() < 0).all())
    assert alpha[-1] < 1e-3
    assert alpha[2].item() == pytest.approx(
        (math.cos((0.5 + 0.008) / 1.008 * math.pi / 2) / math.cos(0.008 / 1.008 * math.pi / 2)) ** 2
    )


def test_an_unknown_process_lists_them():
    with pytest.raises(UserError) as caught:
        find_process("edn")
    assert "edm" in caught.value.hint
