"""Modules that hold encoded weights: what they compute, what they share, where they are put."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from genaccel import devices, models
from genaccel.plans import FORMATS
from genaccel.quantize import kernels, layers
from genaccel.quantize.formats import decode, encode, part_shapes
from genaccel.quantize.layers import (
    QuantizedEmbedding,
    QuantizedLinear,
    choose_kernels,
    quantized_modules,
    replace_weight,
)

ALL = list(FORMATS)


def linear(name: str, outputs: int = 24, inputs: int = 128, bias: bool = True) -> tuple[QuantizedLinear, torch.Tensor]:
    """A layer in the format ``name`` and the fp32 weight that it stands for."""
    generator = torch.Generator().manual_seed(0)
    parts = encode(torch.randn(outputs, inputs, generator=generator), FORMATS[name])
    b = torch.nn.Parameter(torch.randn(outputs, generator=generator)) if bias else None
    return QuantizedLinear(FORMATS[name], parts, (outputs, inputs), b), decode(parts, FORMATS[name])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(128,), (3, 128), (2, 5, 128), (2, 3, 4, 128)])
def test_the_default_kernel_is_exactly_the_decoded_weight(name, bias, shape):
    layer, weight = linear(name, bias=bias)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    y = F.linear(x.view(-1, 128), weight)
    y = (y if layer.bias is None else y + layer.bias).view(*shape[:-1], 24)
    assert layer(x).shape == (*shape[:-1], 24)
    assert torch.equal(layer(x), y)


def test_decoding_in_chunks_computes_the_same(monkeypatch):
    layer, weight = linear("int4_g32", outputs=37)
    x = torch.randn(3, 128, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(kernels, "CHUNK_ELEMENTS", 5 * 128)
    assert torch.allclose(layer(x), F.linear(x, weight, layer.bias), rtol=1e-5, atol=1e-5)


def test_each_class_of_row_counts_calls_its_kernel(monkeypatch):
    called = []

    def watched(name):
        def multiply(x, parts, form):
            called.append((name, len(x)))
            return x.new_zeros(len(x), 24)

        return kernels.Kernel(name, multiply, ("cpu",), lambda _: True, 0.0)

    monkeypatch.setattr(kernels, "BY_NAME", {n: watched(n) for n in ("one", "few", "many")})
    layer, _ = linear("int8")
    layer.kernel_names = ("one", "few", "many")
    for rows in (1, 4, 5, 64, 65, 300):
        layer(torch.zeros(rows, 128))
    layer(torch.zeros(2, 40, 128))  # rows are those of all leading dimensions
    names = ["one", "one", "few", "few", "many", "many", "many"]
    assert called == list(zip(names, (1, 4, 5, 64, 65, 300, 80), strict=True))


def test_every_class_has_a_bound_and_the_last_has_none():
    bounds = [bound for _, bound in kernels.ROW_CLASSES]
    assert bounds == sorted(bounds)
    assert bounds[-1] > 2**40
    assert all(timed <= bound for timed, bound in kernels.ROW_CLASSES)


# --- In a model -------------------------------------------------------------------------------------------------------


@pytest.fixture
def llama(tiny_llama):
    return models.load(models.resolve(str(tiny_llama)))


@pytest.mark.parametrize("name", [n for n in ALL if n != "int4_g128"])
def test_a_tied_head_shares_every_part_with_its_embedding(llama, name):
    model, form = llama.model, FORMATS[name]
    weight = model.model.embed_tokens.weight.detach()
    replace_weight(model, llama.layout, "model.embed_tokens", form, encode(weight, form))
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    assert isinstance(embedding, QuantizedEmbedding)
    assert isinstance(head, QuantizedLinear)
    assert set(embedding.parts()) == set(part_shapes((258, 64), form))
    for part, tensor in embedding.parts().items():
        assert head.parts()[part].data_ptr() == tensor.data_ptr()
    ids = torch.tensor([[5, 0], [257, 5]])
    decoded = decode(encode(weight, form), form)
    assert torch.equal(embedding(ids), decoded[ids])
    x = torch.randn(2, 64)
    assert torch.equal(head(x), F.linear(x, decoded))


def test_a_head_of_its_own_stays_when_the_embedding_changes(tiny_llama_untied):
    loaded = models.load(models.resolve(str(tiny_llama_untied)))
    head = loaded.model.lm_head
    weight = loaded.model.model.embed_tokens.weight.detach()
    replace_weight(loaded.model, loaded.layout, "model.embed_tokens", FORMATS["int8"], encode(weight, FORMATS["int8"]))
    assert loaded.model.lm_head is head


def test_conv1d_is_replaced_with_its_bias(tiny_gpt2):
    loaded = models.load(models.resolve(str(tiny_gpt2)))
    name = "transformer.h.1.attn.c_attn"
    old = loaded.model.get_submodule(name)
    x = torch.randn(2, 7, 64)
    expected = old(x)
    weight = old.weight.detach().t()
    replace_weight(loaded.model, loaded.layout, name, FORMATS["fp32"], encode(weight, FORMATS["fp32"]))
    new = loaded.model.get_submodule(name)
    assert (new.out_features, new.in_features) == (192, 64)
    assert new.bias is old.bias
    assert torch.allclose(new(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [n for n in ALL if n != "int4_g128"])
def test_room_is_made_for_exactly_the_plans_bytes(tiny_model, name):
    model = models.empty_model(tiny_model)
    layout = models.layout_of(models.resolve(str(tiny_model)))
    layers.allocate(model, layout, layout.resolve({w.name: name for w in layout.stored}), torch.device("cpu"))
    parts = {
        p.data_ptr(): p for m in model.modules() if isinstance(m, layers.EncodedWeight) for p in m.parts().values()
    }
    size = sum(p.numel() * p.element_size() for p in parts.values())
    assert size == sum(FORMATS[name].num_bytes(w.shape) for w in layout.stored)
    assert {n for n, p in model.named_parameters() if p.ndim > 1} <= {"transformer.wpe.weight"}


def test_kernels_are_timed_once_a_shape_and_known_ones_are_not_timed(llama, monkeypatch):
    for info in llama.layout.stored:
        weight = llama.model.get_submodule(info.name).weight.detach()
        replace_weight(llama.model, llama.layout, info.name, FORMATS["int8"], encode(weight, FORMATS["int8"]))
    timed = []

    def pick(parts, form, num_inputs, device):
        timed.append((form.name, *parts["weight"].shape))
        return kernels.Choice(("dequantize_bf16",) * 3, {"dequantize_bf16": (1e-6, 2e-6, 3e-6)}, {"other": "why not"})

    monkeypatch.setattr(kernels, "pick", pick)
    known = {
        "int8 64x64": ("dequantize_fp32",) * 3,
        "int8 32x64": ("no such kernel",) * 3,
        "int8 128x64": ("int8pack_bf16",),
    }
    report = choose_kernels(llama.model, devices.get("cpu"), known)
    assert timed == [("int8", 32, 64), ("int8", 128, 64), ("int8", 64, 128), ("int8", 258, 64)]
    assert report["int8 64x64"] == {"kernels": ["dequantize_fp32"] * 3, "origin": "chosen when it was saved"}
    assert report["int8 258x64"]["microseconds"] == {"dequantize_bf16": [1.0, 2.0, 3.0]}
    assert report["int8 258x64"]["left_out"] == {"other": "why not"}
    for module in quantized_modules(llama.model).values():
        own = (module.out_features, module.in_features) == (64, 64)
        assert module.kernel_names == ("dequantize_fp32" if own else "dequantize_bf16",) * 3


def test_printing_a_model_shows_format_and_kernels(llama):
    weight = llama.model.model.embed_tokens.weight.detach()
    replace_weight(llama.model, llama.layout, "model.embed_tokens", FORMATS["int8"], encode(weight, FORMATS["int8"]))
    text = str(llama.model)
    assert "QuantizedEmbedding(258, 64, format=int8)" in text
    assert "QuantizedLinear(64, 258, format=int8, kernels=dequantize_fp32/dequantize_fp32/dequantize_fp32)" in text
