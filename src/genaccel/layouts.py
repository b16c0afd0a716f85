"""Walk a decoder LM: which of its modules hold weight matrices, in which decoder layer, and which tensors are shared."""

from __future__ import annotations

from typing import Any

import torch

from genaccel.errors import UserError
from genaccel.plans import ModelLayout, WeightInfo


def walk(model: Any) -> ModelLayout:
    """The weight matrices of a decoder LM by decoder layer, embedding and head included.

    Raises ``UserError`` naming the first parameter inside a decoder layer that is a matrix but no known kind of
    linear layer, such as fused experts: quantizing around it would claim a success that isn't one.
    """
    prefix, layers = _decoder_layers(model)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    _check_embedding(embedding)
    names = {module: name for name, module in model.named_modules()}
    weights = [WeightInfo(names[embedding], tuple(embedding.weight.shape), None, "embedding")]
    for index, layer in enumerate(layers):
        for name, module in layer.named_modules():
            full = f"{prefix}.{index}.{name}".removesuffix(".")  # the layer itself has no name
            if is_linear(module):
                transposed = not isinstance(module, torch.nn.Linear)
                shape = tuple(module.weight.shape[::-1] if transposed else module.weight.shape)
                weights.append(WeightInfo(full, shape, index, "linear", transposed=transposed))
                continue
            for parameter_name, parameter in module.named_parameters(recurse=False):
                if parameter.ndim > 1:
                    raise UserError(
                        f"{full}.{parameter_name} is a weight of kind {type(module).__name__}, which genaccel cannot quantize.",
                        "Models whose decoder layers hold nn.Linear or GPT-2's Conv1D are supported.",
                    )
    if head is not None:
        tied = head.weight is embedding.weight or bool(
            getattr(model.config.get_text_config(), "tie_word_embeddings", False)
        )
        weights.append(
            WeightInfo(names[head], tuple(head.weight.shape), None, "head", names[embedding] if tied else None)
        )
    matrices = {id(model.get_submodule(w.name).weight) for w in weights}
    others = {id(p): p.numel() for p in model.parameters() if id(p) not in matrices}
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return ModelLayout(prefix, len(layers), tuple(weights), sum(others.values()), positions)


def is_linear(module: torch.nn.Module) -> bool:
    """Whether ``module`` is a linear layer: nn.Linear, or GPT-2's Conv1D, which stores its weight transposed."""
    from transformers.pytorch_utils import Conv1D

    if isinstance(module, torch.nn.Linear):
        return type(module).forward is torch.nn.Linear.forward  # a subclass may compute something else
    return isinstance(module, Conv1D)


def _check_embedding(embedding: torch.nn.Module) -> None:
    """Plain lookups are known, and Gemma's, which scales what it looks up by ``embed_scale``."""
    plain = type(embedding).forward is torch.nn.Embedding.forward
    if not (plain or (isinstance(embedding, torch.nn.Embedding) and hasattr(embedding, "embed_scale"))):
        raise UserError(
            f"The embedding is a {type(embedding).__name__}, which genaccel cannot quantize.",
            "Models with a plain nn.Embedding are supported.",
        )


def _decoder_layers(model: Any) -> tuple[str, torch.nn.ModuleList]:
    count = getattr(model.config.get_text_config(), "num_hidden_layers", None)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count and any(map(is_linear, module.modules())):
            return name, module
    raise UserError(
        f"No list of {count} decoder layers was found in {type(model).__name__}.",
        "Decoder LMs of transformers are supported.",
    )
