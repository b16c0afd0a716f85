"""Number formats against independent arithmetic in numpy and by enumeration of every code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genaccel.errors import UserError
from genaccel.plans import FORMATS
from genaccel.quantize import formats
from genaccel.quantize.formats import FP8_DTYPES, decode, encode, pack4, part_shapes, round_to_, stored_bytes, unpack4

ALL = list(FORMATS)


def weights(rows: int, columns: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale


@pytest.mark.parametrize("name", ALL)
@given(rows=st.integers(1, 9), groups=st.integers(1, 3), seed=st.integers(0, 99))
def test_stored_bytes_are_those_the_plan_counts(name, rows, groups, seed):
    form = FORMATS[name]
    parts = encode(weights(rows, 128 * groups, seed), form)
    assert stored_bytes(parts) == form.num_bytes((rows, 128 * groups))
    assert {k: (tuple(v.shape), v.dtype) for k, v in parts.items()} == part_shapes((rows, 128 * groups), form)


@pytest.mark.parametrize("name", ALL)
def test_rounding_in_place_is_encode_then_decode_and_a_second_time_changes_nothing(name):
    weight = weights(16, 256, 1)
    rounded = weight.clone()
    round_to_(rounded, FORMATS[name])
    assert torch.equal(rounded, decode(encode(weight, FORMATS[name]), FORMATS[name]))
    again = rounded.clone()
    round_to_(again, FORMATS[name])
    assert torch.allclose(again, rounded, rtol=1e-3, atol=1e-6 * float(weight.abs().max()))


@pytest.mark.parametrize("name", ALL)
def test_blocks_of_rows_make_no_difference(name, monkeypatch):
    weight = weights(33, 128, 2)
    whole = encode(weight, FORMATS[name])
    monkeypatch.setattr(formats, "BLOCK_ELEMENTS", 300)
    for part, tensor in encode(weight, FORMATS[name]).items():
        assert torch.equal(tensor.view(torch.uint8), whole[part].view(torch.uint8))


@given(scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]), seed=st.integers(0, 50))
def test_int8_equals_numpy(scale, seed):
    weight = weights(5, 64, seed, scale)
    parts = encode(weight, FORMATS["int8"])
    array = weight.numpy()
    step = np.abs(array).max(axis=1, keepdims=True) / np.float32(127)
    assert np.array_equal(parts["weight_scale"].numpy(), step)
    assert np.array_equal(parts["weight"].numpy(), np.clip(np.rint(array / step), -127, 127).astype(np.int8))
    assert np.all(np.abs(decode(parts, FORMATS["int8"]).numpy() - array) <= step / 2 * 1.0001)


def to_bfloat16(array: np.ndarray) -> np.ndarray:
    """fp32 -> bf16 by the rule itself: add half of what is cut off, one less for an even result, and cut."""
    bits = array.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


@given(scale=st.sampled_from([1e-30, 1e-7, 1e-3, 1.0, 1e3]), seed=st.integers(0, 50))
def test_plain_floats_round_as_numpy_does(scale, seed):
    weight = weights(5, 64, seed, scale)
    array = weight.numpy()
    assert np.array_equal(decode(encode(weight, FORMATS["fp32"]), FORMATS["fp32"]).numpy(), array)
    halves = decode(encode(weight, FORMATS["fp16"]), FORMATS["fp16"]).numpy()
    assert np.array_equal(halves, array.astype(np.float16).astype(np.float32))
    assert np.array_equal(decode(encode(weight, FORMATS["bf16"]), FORMATS["bf16"]).numpy(), to_bfloat16(array))


@pytest.mark.parametrize("name", ["int4_g32", "int4_g64", "int4_g128"])
@given(
    scale=st.sampled_from([1e-3, 0.02, 1.0, 300.0]), shift=st.sampled_from([0.0, 5.0, -0.3]), seed=st.integers(0, 30)
)
def test_int4_equals_numpy(name, scale, shift, seed):
    """Minimum and step of every group in fp16, nearest of sixteen levels; written anew, group by group."""
    form = FORMATS[name]
    weight = weights(3, 256, seed, scale) + shift * scale
    parts = encode(weight, form)
    groups = weight.numpy().reshape(3, -1, form.group_size)
    levels = unpack4(parts["weight_packed"]).numpy().reshape(groups.shape)
    values = decode(parts, form).numpy().reshape(groups.shape)
    for row, column in np.ndindex(groups.shape[:2]):
        group = groups[row, column]
        minimum = np.float16(group.min())
        step = np.float16((group.max() - group.min()) / np.float32(15))
        assert parts["weight_minimum"].numpy()[row, column] == minimum
        assert parts["weight_scale"].numpy()[row, column] == step
        expected = np.clip(np.rint((group - np.float32(minimum)) / np.float32(step)), 0, 15)
        assert np.array_equal(levels[row, column], expected)
        assert np.allclose(values[row, column], expected * np.float32(step) + np.float32(minimum), rtol=1e-6)


@pytest.mark.parametrize("name", ["int8", "fp8_e4m3", "fp8_e5m2"])
@given(seed=st.integers(0, 50), scale=st.sampled_from([1e-20, 1.0, 1e20]))
def test_codes_are_their_own_codes(name, seed, scale):
    """encode(decode(encode(w))) finds the same codes; scales may move by a rounding of fp32."""
    first = encode(weights(4, 64, seed, scale), FORMATS[name])
    second = encode(decode(first, FORMATS[name]), FORMATS[name])
    assert torch.equal(second["weight"].view(torch.uint8), first["weight"].view(torch.uint8))
    assert torch.allclose(second["weight_scale"], first["weight_scale"], rtol=1e-6)


@pytest.mark.parametrize("name", ["int4_g32", "int4_g64", "int4_g128"])
@given(seed=st.integers(0, 50), scale=st.sampled_from([1e-3, 0.02, 1.0, 300.0]))
def test_four_bits_a_second_time_change_nothing_at_all(name, seed, scale):
    first = encode(weights(4, 256, seed, scale), FORMATS[name])
    second = encode(decode(first, FORMATS[name]), FORMATS[name])
    assert all(torch.equal(second[part], first[part]) for part in first)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("magnitude", [1e-44, 1e-38, 1e-10, 1e30, 3e38])
def test_tiny_and_huge_rows_stay_in_proportion_or_are_refused(name, magnitude):
    """Never NaN, never a wrong sign, never more than a tenth of the row's largest weight away, unless it underflows."""
    form = FORMATS[name]
    weight = torch.linspace(-1, 1, 128)[None] * magnitude
    reach = {"fp16": 65504, "int4_g32": 65504, "int4_g64": 65504, "int4_g128": 65504}.get(name, 3.4e38)
    if magnitude > reach:
        with pytest.raises(UserError, match="w holds"):
            encode(weight, form, "w")
        return
    values = decode(encode(weight, form), form)
    assert bool(torch.isfinite(values).all())
    smallest = {"fp16": 6e-8, "int4_g32": 6e-7, "int4_g64": 6e-7, "int4_g128": 6e-7}.get(name, 1e-42)
    assert float((values - weight).abs().max()) <= max(0.1 * magnitude, smallest)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ALL)
def test_weights_of_any_float_dtype_are_encoded_as_their_fp32_values(name, dtype):
    weight = weights(4, 128, 8).to(dtype)
    for part, tensor in encode(weight, FORMATS[name]).items():
        expected = encode(weight.float(), FORMATS[name])[part]
        assert torch.equal(tensor.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("name", ALL)
def test_a_transposed_weight_is_encoded_as_its_copy(name):
    weight = weights(128, 128, 9).t()
    for part, tensor in encode(weight, FORMATS[name]).items():
        assert tensor.is_contiguous()
        assert torch.equal(tensor.view(torch.uint8), encode(weight.contiguous(), FORMATS[name])[part].view(torch.uint8))
    rounded = weight.clone(memory_format=torch.preserve_format)
    round_to_(rounded, FORMATS[name])
    assert torch.equal(rounded, decode(encode(weight, FORMATS[name]), FORMATS[name]))


@pytest.mark.parametrize("name", FP8_DTYPES)
def test_fp8_takes_the_nearest_of_all_codes(name):
    codes = torch.arange(256, dtype=torch.uint8).view(FP8_DTYPES[name]).float()
    codes = codes[torch.isfinite(codes)].numpy()
    weight = weights(8, 64, 3)
    parts = encode(weight, FORMATS[name])
    scale = parts["weight_scale"].numpy()
    target = weight.numpy() / scale
    nearest = np.abs(codes[None, None, :] - target[:, :, None]).min(axis=2)
    assert np.allclose(np.abs(parts["weight"].float().numpy() - target), nearest, rtol=1e-4, atol=1e-7)
    assert np.allclose(np.abs(parts["weight"].float().numpy()).max(axis=1), codes.max())


@pytest.mark.parametrize("name", ["int4_g32", "int4_g64", "int4_g128"])
def test_int4_stays_within_half_a_step_and_uses_both_ends(name):
    form = FORMATS[name]
    weight = weights(6, 256, 4)
    parts = encode(weight, form)
    step = parts["weight_scale"].float().repeat_interleave(form.group_size, dim=1)
    # half a step, and what fp16 loses on the minimum and the scale
    allowed = step / 2 + weight.abs().max() * 2**-10
    assert bool(((decode(parts, form) - weight).abs() <= allowed).all())
    levels = unpack4(parts["weight_packed"]).view(6, -1, form.group_size)
    assert int(levels.amin()) == 0
    assert int(levels.amax()) == 15


def test_int4_is_lossless_on_weights_that_lie_on_such_a_grid():
    generator = torch.Generator().manual_seed(5)
    step = (torch.rand(8, 4, 1, generator=generator) * 0.1).half().float()
    minimum = (-torch.rand(8, 4, 1, generator=generator)).half().float()
    levels = torch.randint(0, 16, (8, 4, 32), generator=generator)
    levels[..., 0], levels[..., 1] = 0, 15
    weight = (levels * step + minimum).reshape(8, 128)
    assert torch.allclose(decode(encode(weight, FORMATS["int4_g32"]), FORMATS["int4_g32"]), weight, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_rows_of_zeros_and_constants_survive(name):
    weight = torch.stack([torch.zeros(128), torch.full((128,), 0.25), torch.full((128,), -2.0)])
    assert torch.allclose(decode(encode(weight, FORMATS[name]), FORMATS[name]), weight, rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(name, bad):
    weight = weights(4, 128, 6)
    weight[3, 7] = bad
    with pytest.raises(UserError, match=r"my\.layer"):
        encode(weight, FORMATS[name], "my.layer")


def test_what_fp16_cannot_hold_is_said():
    with pytest.raises(UserError, match=r"my\.layer holds 70000, which fp16 cannot"):
        encode(torch.tensor([[1.0, 70000.0]]), FORMATS["fp16"], "my.layer")
    with pytest.raises(UserError) as caught:
        encode(torch.tensor([[3.4e38]]), FORMATS["bf16"], "my.layer")
    assert caught.value.hint == "Give it fp32 in the plan."
    with pytest.raises(UserError, match="range of fp16 scales"):
        encode(torch.full((1, 32), 1e6), FORMATS["int4_g32"], "my.layer")


def test_groups_must_divide_the_inputs():
    with pytest.raises(UserError, match=r"multiple of 64 inputs, but my\.layer has 96"):
        encode(weights(2, 96, 7), FORMATS["int4_g64"], "my.layer")
    with pytest.raises(UserError, match=r"multiple of 64 inputs, but my\.layer has 96"):
        round_to_(weights(2, 96, 7), FORMATS["int4_g64"], "my.layer")


@given(st.lists(st.integers(0, 15), min_size=2, max_size=64).filter(lambda v: len(v) % 2 == 0))
def test_packing_is_invertible_and_the_even_column_is_the_low_nibble(levels):
    row = torch.tensor([levels], dtype=torch.uint8)
    packed = pack4(row)
    assert torch.equal(unpack4(packed), row)
    assert int(packed[0, 0]) == levels[0] + 16 * levels[1]
