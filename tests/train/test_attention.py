"""Our attention against transformers' eager one, document by document, with every kernel that is here."""

from __future__ import annotations

import pytest
import torch

from genaccel import models
from genaccel.devices import get
from genaccel.errors import UserError
from genaccel.train import attention

LENGTHS = (7, 1, 20, 4)


def loaded(folder):
    return models.load(models.resolve(str(folder))).model.eval()


@pytest.fixture
def documents():
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(258, (n,), generator=generator) for n in LENGTHS]


def packed(documents):
    return {
        "input_ids": torch.cat(documents)[None],
        "position_ids": torch.cat([torch.arange(len(d)) for d in documents])[None],
        "document_lengths": tuple(map(len, documents)),
        "use_cache": False,
    }


@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_llama_untied", "tiny_qwen2", "tiny_gemma2", "tiny_gpt2"])
def test_packed_documents_equal_documents_on_their_own(architecture, request, documents):
    folder = request.getfixturevalue(architecture)
    reference = loaded(folder)
    reference.set_attn_implementation("eager")
    model = loaded(folder)
    attention.use(model)
    with torch.no_grad():
        expected = torch.cat([reference(input_ids=d[None], use_cache=False).logits[0] for d in documents])
        found = model(**packed(documents)).logits[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["tiny_llama", "tiny_gemma2"])
def test_padding_on_the_right_changes_no_real_token(architecture, request, documents):
    model = loaded(request.getfixturevalue(architecture))
    attention.use(model)
    rows = torch.nn.utils.rnn.pad_sequence(documents, batch_first=True)
    with torch.no_grad():
        together = model(input_ids=rows, use_cache=False).logits
        for row, document in zip(together, documents, strict=True):
            alone = model(input_ids=document[None], use_cache=False).logits[0]
            torch.testing.assert_close(row[: len(document)], alone, rtol=1e-4, atol=1e-5)


def test_gradients_equal_those_of_eager_attention(tiny_llama, documents):
    gradients = []
    for name in ("eager", attention.NAME):
        model = loaded(tiny_llama)
        if name == "eager":
            model.set_attn_implementation(name)
            sum(model(input_ids=d[None], use_cache=False).logits.square().sum() for d in documents).backward()
        else:
            attention.use(model)
            model(**packed(documents)).logits.square().sum().backward()
        gradients.append([p.grad for p in model.parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kernel", ["math", "flash"])
def test_a_forced_kernel_is_the_one_that_runs(kernel, tiny_llama, documents):
    """The profiler names the operator that ran."""
    model = loaded(tiny_llama)
    attention.use(model)
    with attention.forced(kernel), torch.no_grad(), torch.autograd.profiler.profile() as profile:
        model(**packed(documents))
    names = {event.name for event in profile.function_events}
    assert ("aten::_scaled_dot_product_attention_math" in names) == (kernel == "math")
    assert any("flash" in name for name in names) == (kernel == "flash")


def test_a_kernel_that_is_not_here_names_those_that_are():
    found = attention.available(get("cpu"), torch.float32, 16)
    usable = {name for name, reason in found.items() if not reason}
    assert {"flash", "math"} <= usable
    attention.check("flash", get("cpu"), torch.float32, 16, None)
    for missing in set(attention.KERNELS) - usable:
        with pytest.raises(UserError) as caught:
            attention.check(missing, get("cpu"), torch.float32, 16, None)
        assert "math" in caught.value.hint


def test_capped_scores_leave_no_choice_of_kernel():
    with pytest.raises(UserError, match="caps its attention scores"):
        attention.check("flash", get("cpu"), torch.float32, 16, 50.0)
    attention.check("math", get("cpu"), torch.float32, 16, 50.0)
