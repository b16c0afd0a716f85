"""Kernels against fp64, wrong ones caught, the choice between right ones, and the modules that call them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from genaccel import devices
from genaccel.plans import FORMATS
from genaccel.quantize import kernels
from genaccel.quantize.formats import decode, encode
from genaccel.quantize.layers import QuantizedEmbedding, QuantizedLinear

CPU = torch.device("cpu")
PAIRS = [(k, f) for k in kernels.KERNELS if "cpu" in k.devices for f in FORMATS.values() if k.accepts(f)]


@pytest.mark.parametrize(("kernel", "form"), PAIRS, ids=lambda v: v.name)
@given(rows=st.sampled_from([1, 3, 17, 80]), outputs=st.sampled_from([5, 64, 200]), seed=st.integers(0, 20))
def test_a_kernel_that_passes_its_check_is_right_on_other_shapes(kernel, form, rows, outputs, seed):
    if kernels.check(kernel, form, CPU) is not None:
        pytest.skip(f"{kernel.name} is wrong on this processor")
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(n, 128, generator=generator) for n in (rows, outputs))
    parts = encode(weight, form)
    decoded = decode(parts, form).double()
    error = (kernel.multiply(x, parts, form).double() - x.double() @ decoded.t()).abs()
    assert bool((error <= kernel.tolerance * (x.double().abs() @ decoded.abs().t())).all())


def saturating(x, parts, form):
    """As libraries do that add pairs of int8 products in 16 bits."""
    pairs = (x.round()[:, None, :] * parts["weight"].float()[None]).unflatten(-1, (-1, 2)).sum(-1)
    return pairs.clamp(-(2**15), 2**15 - 1).sum(-1) * parts["weight_scale"].view(-1)


def forgets_the_scale(x, parts, form):
    return F.linear(x, parts["weight"].float())


def breaks(x, parts, form):
    raise RuntimeError("not implemented for this processor")


@pytest.mark.parametrize(
    ("multiply", "reason"),
    [
        (saturating, "wrong on extreme values"),
        (forgets_the_scale, "wrong on extreme values"),
        (breaks, "not implemented"),
    ],
)
def test_a_wrong_kernel_is_caught(multiply, reason):
    kernel = kernels.Kernel("wrong", multiply, ("cpu",), lambda _: True, 2**-7)
    assert reason in kernels.check(kernel, FORMATS["int8"], CPU)


def test_a_later_kernel_must_be_clearly_faster():
    assert kernels._fastest({"exact": (1.0,), "rough": (0.9,)}, 0) == "exact"
    assert kernels._fastest({"exact": (1.0,), "rough": (0.8,)}, 0) == "rough"


def test_the_choice_names_what_was_left_out(monkeypatch):
    wrong = kernels.Kernel("wrong", breaks, ("cpu",), lambda _: True, 1.0)
    elsewhere = kernels.Kernel("elsewhere", breaks, ("cuda",), lambda _: True, 1.0)
    monkeypatch.setattr(kernels, "KERNELS", (*kernels.KERNELS, wrong, elsewhere))
    choice = kernels.pick(encode(torch.randn(32, 64), FORMATS["int8"]), FORMATS["int8"], 64, devices.get("cpu"))
    assert choice.left_out["wrong"] == "not implemented for this processor"
    assert choice.left_out["elsewhere"] == "not for cpu"
    assert set(choice.kernels) <= set(choice.seconds)
    assert all(t > 0 for times in choice.seconds.values() for t in times)


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize("shape", [(128,), (3, 128), (2, 5, 128)])
def test_a_layer_is_the_decoded_weight_and_its_bias(name, shape):
    form = FORMATS[name]
    parts = encode(torch.randn(48, 128), form)
    bias = torch.nn.Parameter(torch.randn(48))
    layer = QuantizedLinear(form, parts, (48, 128), bias)
    x = torch.randn(shape)
    assert torch.allclose(layer(x), F.linear(x, decode(parts, form), bias), rtol=1e-4, atol=1e-4)


def test_the_kernel_follows_the_number_of_rows():
    layer = QuantizedLinear(FORMATS["int8"], encode(torch.randn(4, 32), FORMATS["int8"]), (4, 32), None)
    layer.kernel_names = ("a", "b", "c")
    assert [layer._kernel_for(n) for n in (1, 4, 5, 64, 65, 10_000)] == ["a", "a", "b", "b", "c", "c"]


@pytest.mark.parametrize("name", list(FORMATS))
def test_an_embedding_decodes_the_rows_it_is_asked_for(name):
    form = FORMATS[name]
    parts = encode(torch.randn(20, 128), form)
    plain = torch.nn.Embedding(20, 128)
    ids = torch.tensor([[3, 3, 0], [19, 7, 1]])
    assert torch.equal(QuantizedEmbedding(form, parts, (20, 128), plain)(ids), decode(parts, form)[ids])
    plain.embed_scale = torch.tensor(8.0)
    assert torch.equal(QuantizedEmbedding(form, parts, (20, 128), plain)(ids), 8 * decode(parts, form)[ids])
