"""The shape of a decoder language model: what its arithmetic and memory follow from, without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from genaccel.errors import UserError, unknown
from genaccel.hardware import read_catalogue


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder LM. ``sliding_share`` of the layers look back ``sliding_window`` tokens only."""

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied_embeddings: bool
    gated_mlp: bool
    source: str
    context: int | None = None
    sliding_window: int | None = None
    sliding_share: float = 0.0
    norms_per_layer: int = 2
    attention_softcap: float | None = None
    hub_ids: tuple[str, ...] = ()

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of the linear layers of one decoder layer, by the names that Llama gives them."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        shapes = {
            "q_proj": (queries, self.hidden_size),
            "k_proj": (keys, self.hidden_size),
            "v_proj": (keys, self.hidden_size),
            "o_proj": (self.hidden_size, queries),
            "up_proj": (self.intermediate_size, self.hidden_size),
            "down_proj": (self.hidden_size, self.intermediate_size),
        }
        if self.gated_mlp:
            shapes["gate_proj"] = (self.intermediate_size, self.hidden_size)
        return shapes

    @property
    def layer_weights(self) -> int:
        """Weights of the linear layers of one decoder layer."""
        return sum(outputs * inputs for outputs, inputs in self.linear_shapes.values())

    @property
    def embedding_weights(self) -> int:
        """Weights of the embedding, which the head shares when it is tied."""
        return self.vocab_size * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters: linear layers, gains of the norms, embedding and an untied head. Biases are not counted."""
        heads = self.embedding_weights * (1 if self.tied_embeddings else 2)
        norms = (self.num_layers * self.norms_per_layer + 1) * self.hidden_size
        return self.num_layers * self.layer_weights + norms + heads

    def adapter_weights(self, rank: int, targets: tuple[str, ...] = ()) -> int:
        """Weights of LoRA on ``targets`` (all linear layers by default) of every decoder layer."""
        shapes = self.linear_shapes
        return self.num_layers * sum(rank * sum(shapes[name]) for name in targets or shapes if name in shapes)


@cache
def model_shapes() -> dict[str, ModelShape]:
    """All model shapes of the catalogue by name."""
    return read_catalogue("models", ModelShape)


def find_shape(name: str) -> ModelShape:
    """The catalogue's shape called ``name``, which may also be a hub id, or a ``UserError``."""
    for shape in model_shapes().values():
        if name.lower() in (shape.name, *(i.lower() for i in shape.hub_ids)):
            return shape
    raise unknown("model in the catalogue", name, model_shapes())


UNGATED_TYPES = {"gpt2", "opt", "gpt_neox", "phi", "gpt_bigcode", "starcoder2", "falcon", "mpt"}


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a Hugging Face ``config.json`` describes; ``UserError`` names what is missing."""

    def need(*keys: str) -> int:
        for key in keys:
            if isinstance(config.get(key), int):
                return int(config[key])
        raise UserError(f"The configuration of {name} has no {keys[0]}.", "Decoder LMs of transformers are supported.")

    hidden, heads = need("hidden_size", "n_embd"), need("num_attention_heads", "n_head")
    kind = str(config.get("model_type", ""))
    gemma = kind.startswith(("gemma2", "gemma3"))
    window = config.get("sliding_window")
    window = window if isinstance(window, int) and config.get("use_sliding_window", True) else None
    kinds = config.get("layer_types") or ()
    share = sum(k == "sliding_attention" for k in kinds) / len(kinds) if kinds else (0.5 if gemma else 1.0)
    gated = kind not in UNGATED_TYPES
    return ModelShape(
        name=name,
        num_layers=need("num_hidden_layers", "n_layer"),
        hidden_size=hidden,
        intermediate_size=config.get("intermediate_size") or config.get("n_inner") or 4 * hidden,
        num_heads=heads,
        num_kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or hidden // heads,
        vocab_size=need("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", kind in ("gpt2", "gemma", "gemma2"))),
        gated_mlp=gated,
        source="config.json",
        context=config.get("max_position_embeddings") or config.get("n_positions"),
        sliding_window=window,
        sliding_share=share if window else 0.0,
        norms_per_layer=4 if gemma else 2,
        attention_softcap=config.get("attn_logit_softcapping"),
    )
