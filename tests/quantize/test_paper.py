"""The paper's method against plain sorting, brute force and hand-made cases."""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.quantize import paper


def as_layers(*layers: list[torch.Tensor]) -> list[paper.Layer]:
    """Layers of named tensors as paper.py takes them."""
    return [partial(iter, [(f"layer{i}.{j}", t) for j, t in enumerate(layer)]) for i, layer in enumerate(layers)]


def by_sorting(layers: list[list[torch.Tensor]], p: float) -> tuple[float, list[float]]:
    """The definition, done the slow way: sort everything, count survivors."""
    arrays = [np.concatenate([np.abs(t.float().numpy().ravel()) for t in layer]) for layer in layers]
    everything = np.sort(np.concatenate(arrays))
    tau = everything[min(int(p * len(everything) + 1e-9), len(everything) - 1)]
    return float(tau), [float((a >= tau).mean()) for a in arrays]


def grid(shape: tuple[int, int], levels: int, seed: int) -> torch.Tensor:
    return torch.randint(-levels, levels + 1, shape, generator=torch.Generator().manual_seed(seed)).float() / 8


def normal(shape: tuple[int, int], seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


CASES = {
    "normal": [[normal((64, 32), 0)], [normal((32, 16), 1, 3.0), normal((8, 8), 2, 0.1)]],
    "a grid full of ties": [[grid((40, 40), 3, 0)], [grid((40, 40), 3, 1)]],
    "all equal": [[torch.full((5, 5), 0.5)], [torch.full((7, 3), -0.5)]],
    "all zero": [[torch.zeros(4, 4)], [torch.zeros(4, 4)]],
    "mostly zero": [[torch.zeros(10, 10)], [normal((4, 4), 3)]],
    "denormal and huge": [[normal((20, 20), 4, 1e-42)], [normal((20, 20), 5, 1e30)]],
    "one weight a layer": [[torch.tensor([[1.0]])], [torch.tensor([[-2.0]])], [torch.tensor([[3.0]])]],
    "zeros of both signs": [[torch.tensor([0.0, -0.0, 1.0, -1.0])], [torch.tensor([-0.0, 2.0])]],
    "neighbouring floats": [[torch.nextafter(torch.ones(50), torch.full((50,), 2.0))], [torch.ones(70)]],
    "transposed": [[normal((64, 32), 10).t(), normal((5, 9), 11)[::2]]],
    "bf16": [[normal((64, 64), 6).bfloat16()], [normal((64, 64), 7, 2.0).bfloat16()]],
    "fp16 beside fp32": [[normal((64, 64), 8).half()], [normal((64, 64), 9)]],
}


@pytest.mark.parametrize("p", [1e-9, 0.01, 0.3, 0.5, 0.99, 1 - 1e-12])
@pytest.mark.parametrize("name", CASES)
def test_threshold_and_scores_equal_those_of_sorting(name, p):
    tau, scores = by_sorting(CASES[name], p)
    found = paper.scores_by_magnitude(as_layers(*CASES[name]), p)
    assert found.tau == tau
    assert found.scores == tuple(scores)
    assert found.num_weights == tuple(sum(t.numel() for t in layer) for layer in CASES[name])


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=2, max_size=60), st.data())
def test_any_split_into_layers_has_the_same_threshold(values, data):
    p = data.draw(st.floats(0.01, 0.99))
    cut = data.draw(st.integers(1, len(values) - 1))
    weights = torch.tensor(values)
    tau, _ = by_sorting([[weights]], p)
    assert paper.scores_by_magnitude(as_layers([weights]), p).tau == tau
    assert paper.scores_by_magnitude(as_layers([weights[:cut]], [weights[cut:]]), p).tau == tau
    assert paper.scores_by_magnitude(as_layers([weights[:cut], weights[cut:]]), p).tau == tau


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=80), st.floats(0.01, 0.99))
def test_ties_never_prune_more_than_the_share(levels, p):
    (survivors,) = paper.scores_by_magnitude(as_layers([torch.tensor(levels).float()]), p).scores
    assert 1 - survivors <= p + 1e-6


def test_blocks_make_no_difference(monkeypatch):
    whole = paper.scores_by_magnitude(as_layers(*CASES["normal"]))
    monkeypatch.setattr(paper, "BLOCK", 37)
    assert paper.scores_by_magnitude(as_layers(*CASES["normal"])) == whole


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_weights_that_are_not_finite_are_named(bad):
    layers = [[normal((4, 4), 0)], [normal((4, 4), 1), torch.tensor([[1.0, bad]])]]
    with pytest.raises(UserError, match=r"layer1\.1"):
        paper.scores_by_magnitude(as_layers(*layers))


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_outside_0_and_1_is_refused(p):
    with pytest.raises(UserError, match="pruned share"):
        paper.scores_by_magnitude(as_layers([normal((4, 4), 0)]), p)


def test_a_layer_without_weights_is_refused():
    with pytest.raises(UserError, match="Layer 1 has no weights"):
        paper.scores_by_magnitude(as_layers([normal((4, 4), 0)], [], [normal((4, 4), 1)]))
    with pytest.raises(UserError, match="no layers"):
        paper.scores_by_magnitude([])


def test_weights_are_streamed_once_a_pass_and_left_alone():
    weight = normal((40, 40), 0)
    before, passes = weight.clone(), []

    def layer():
        passes.append(1)
        yield "w", weight

    paper.scores_by_magnitude([layer])
    assert len(passes) == 2
    assert torch.equal(weight, before)


@given(st.lists(st.floats(0, 1, width=16), min_size=1, max_size=12))
def test_two_means_equals_brute_force_over_all_splits(scores):
    def cost(part):
        return float(np.sum((np.array(part) - np.mean(part)) ** 2))

    ordered = sorted(scores, reverse=True)
    best = min((cost(ordered[:m]) + cost(ordered[m:]) for m in range(1, len(ordered))), default=0.0)
    count = paper.count_by_two_means(scores)
    if len(set(scores)) == 1:
        assert count == 0
    else:
        assert cost(ordered[:count]) + cost(ordered[count:]) == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    ("layers", "share", "expected"), [(30, 0.5, 15), (5, 0.5, 3), (3, 0.0, 0), (3, 1.0, 3), (22, 0.25, 6), (1, 0.4, 0)]
)
def test_a_share_of_layers_is_rounded_half_up(layers, share, expected):
    assert paper.count_by_share(layers, share) == expected


def test_ranks_and_assignment():
    scores = [0.2, 0.9, 0.9, 0.1]
    assert paper.most_sensitive(scores, 1) == {1}
    assert paper.most_sensitive(scores, 2) == {1, 2}
    assert paper.assign_precisions(scores, 2, "fp16", "int8") == ["int8", "fp16", "fp16", "int8"]


def test_permuting_layers_permutes_their_formats():
    scores = [0.5, 0.1, 0.9, 0.3]
    for order in itertools.permutations(range(4)):
        formats = paper.assign_precisions([scores[i] for i in order], 2, "high", "low")
        assert [formats[order.index(i)] for i in range(4)] == ["high", "low", "high", "low"]


def test_pruning_one_layer_scores_the_rise_of_the_loss_and_restores():
    first, second = normal((10, 10), 0), normal((10, 10), 1)
    originals = first.clone(), second.clone()

    def loss() -> float:
        return float((first**2).sum() + 10 * (second**2).sum())

    intact, increases = paper.scores_by_pruning_one_layer([[("a", first)], [("b", second)]], loss, 0.3)
    assert intact == pytest.approx(loss())
    for weight, factor, increase in ((first, 1, increases[0]), (second, 10, increases[1])):
        pruned = np.sort((weight.numpy().ravel()) ** 2)[:30].sum()
        assert increase == pytest.approx(-factor * pruned, rel=1e-4)
    assert torch.equal(first, originals[0])
    assert torch.equal(second, originals[1])


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_pruning_restores_the_weights_when_the_loss_fails(error):
    weight = torch.nn.Parameter(torch.cat([normal((10, 10), 0), torch.full((1, 10), -0.0)]))
    original = weight.detach().clone()
    calls = iter([False, True])

    def loss() -> float:
        if next(calls):
            assert not torch.equal(weight, original)
            raise error
        return 1.0

    with pytest.raises(error):
        paper.scores_by_pruning_one_layer([[("a", weight)]], loss, 0.3)
    assert torch.equal(weight.view(torch.int32), original.view(torch.int32))  # bits, signs of zeros included


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_pruning_zeroes_what_lies_below_the_layers_own_threshold(dtype):
    """A layer's matrices are pruned together, ties at the threshold stay, the other layers are intact meanwhile."""
    layers = [[normal((8, 8), 0).to(dtype), grid((8, 8), 2, 1).to(dtype)], [normal((8, 8), 2).to(dtype)]]
    named = [[(f"{i}.{j}", t) for j, t in enumerate(layer)] for i, layer in enumerate(layers)]
    seen, done = [], []

    def loss() -> float:
        seen.append([[t.clone() for t in layer] for layer in layers])
        return float(len(seen) ** 2)

    result = paper.scores_by_pruning_one_layer(named, loss, 0.3, lambda: done.append(len(seen)))
    assert result == (1.0, (3.0, 8.0))
    assert done == [2, 3]
    intact, *pruned = seen
    for index, state in enumerate(pruned):
        tau, _ = by_sorting([intact[index]], 0.3)
        for other in range(2):
            for now, before in zip(state[other], intact[other], strict=True):
                expected = torch.where(before.abs().float() < tau, torch.zeros_like(before), before)
                assert torch.equal(now, expected if other == index else before)
