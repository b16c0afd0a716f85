"""The shape of a decoder language model: what its arithmetic and memory follow from, without its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from genaccel.errors import UserError, unknown
from genaccel.hardware import read_catalogue


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder LM. ``sliding_share`` of the layers look back ``sliding_window`` tokens only.

    Of ``num_experts`` MLPs of ``intermediate_size`` in a layer, a token goes through ``experts_per_token``. ``qk_norm``:
    queries and keys of every head are normalized. ``norm_bias``: norms have a bias beside their gain.
    ``learned_positions`` is how many positions have a vector. ``other_parameters`` are in none of these.
    """

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
    qk_norm: bool = False
    other_parameters: int = 0
    attention_softcap: float | None = None
    hub_ids: tuple[str, ...] = ()
    num_experts: int = 1
    experts_per_token: int = 1
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    norm_bias: bool = False
    learned_positions: int = 0

    @property
    def linear_shapes(self) -> dict[str, tuple[int, int]]:
        """(outputs, inputs) of the linear layers of one decoder layer, by the names that Llama gives them.

        Of a mixture, those of one expert; the router is left out.
        """
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

    def _weights(self, num_experts: int) -> int:
        """Weights of the linear layers of one decoder layer with so many of its experts, and of its router."""
        copies = {name: num_experts if name in MLP else 1 for name in self.linear_shapes}
        linear = sum(copies[name] * outputs * inputs for name, (outputs, inputs) in self.linear_shapes.items())
        return linear + (self.num_experts * self.hidden_size if self.num_experts > 1 else 0)

    @property
    def layer_weights(self) -> int:
        """Weights of the linear layers of one decoder layer, all experts included: what memory holds."""
        return self._weights(self.num_experts)

    @property
    def active_layer_weights(self) -> int:
        """Those that one token goes through: what arithmetic follows from. All of them unless there are experts."""
        return self._weights(self.experts_per_token)

    @property
    def embedding_weights(self) -> int:
        """Weights of the embedding, which the head shares when it is tied."""
        return self.vocab_size * self.hidden_size

    @property
    def small_parameters(self) -> int:
        """Gains and biases of norms, biases of linear layers, learned positions: few, and in no matrix product."""
        outputs = {name: size for name, (size, _) in self.linear_shapes.items()}
        biased = {"q_proj", "k_proj", "v_proj"} if self.qkv_bias else set()
        biased |= {"o_proj"} if self.output_bias else set()
        biased |= MLP & set(outputs) if self.mlp_bias else set()
        layer = sum(outputs[name] * (self.num_experts if name in MLP else 1) for name in biased)
        layer += 2 * self.head_dim if self.qk_norm else 0
        norms = (self.num_layers * self.norms_per_layer + 1) * self.hidden_size * (2 if self.norm_bias else 1)
        return self.num_layers * layer + norms + self.learned_positions * self.hidden_size + self.other_parameters

    @property
    def num_parameters(self) -> int:
        """All parameters: linear layers, embedding, an untied head, and the small ones."""
        heads = self.embedding_weights * (1 if self.tied_embeddings else 2)
        return self.num_layers * self.layer_weights + heads + self.small_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token goes through: all of them unless there are experts."""
        return self.num_parameters - self.num_layers * (self.layer_weights - self.active_layer_weights)

    def adapter_weights(self, rank: int, targets: tuple[str, ...] = ()) -> int:
        """Weights of LoRA on ``targets`` of every decoder layer, and of each of its experts.

        All linear layers by default, and when no target has one of Llama's names: an upper bound for fused layers.
        """
        return self._adapters(rank, targets, self.num_experts)

    def active_adapter_weights(self, rank: int, targets: tuple[str, ...] = ()) -> int:
        """Those of ``adapter_weights`` that one token goes through."""
        return self._adapters(rank, targets, self.experts_per_token)

    def _adapters(self, rank: int, targets: tuple[str, ...], num_experts: int) -> int:
        shapes = self.linear_shapes
        named = [name for name in targets if name in shapes] or list(shapes)
        copies = {name: num_experts if name in MLP else 1 for name in named}
        return self.num_layers * sum(copies[name] * rank * sum(shapes[name]) for name in named)


MLP = {"gate_proj", "up_proj", "down_proj"}


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
"""Models whose MLP has two matrices; they have LayerNorm, with biases. All others are gated, with RMSNorm."""
TIED_TYPES = {"gpt2", "opt", "gpt_bigcode", "starcoder2", "falcon", "mpt"}
TIED_FAMILIES = ("gemma", "cohere")
"""Models whose head is the embedding unless their configuration says otherwise."""


def shape_of_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """The shape that a Hugging Face ``config.json`` describes.

    Parameters are counted exactly for Llama, Mistral, Qwen2, Qwen3, Phi-3, Gemma (1, 2, 3), GPT-2 and MPT, whose tests
    compare; for others up to their biases. ``UserError`` names what is missing, or refuses a mixture of experts.
    """
    config = config.get("text_config") or config

    def need(*keys: str) -> int:
        for key in keys:
            if isinstance(config.get(key), int):
                return int(config[key])
        raise UserError(f"The configuration of {name} has no {keys[0]}.", "Decoder LMs of transformers are supported.")

    for key in ("num_local_experts", "num_experts", "n_routed_experts"):
        if config.get(key):
            raise UserError(
                f"{name} is a mixture of experts ({key} = {config[key]}), whose layers are not known here.",
                "Choose a dense decoder LM.",
            )
    kind = str(config.get("model_type", ""))
    hidden, heads = need("hidden_size", "n_embd", "d_model"), need("num_attention_heads", "n_head", "n_heads")
    num_layers, gated = need("num_hidden_layers", "n_layer", "n_layers"), kind not in UNGATED_TYPES
    kv_heads = config.get("num_key_value_heads") or config.get("num_kv_heads")
    inner = config.get("intermediate_size") or config.get("n_inner")
    window, share = _sliding(config, kind, num_layers)
    context = config.get("max_position_embeddings") or config.get("n_positions") or config.get("max_seq_len")
    shape = ModelShape(
        name=name,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=inner or (need("intermediate_size") if gated else 4 * hidden),
        num_heads=heads,
        num_kv_heads=kv_heads or (1 if config.get("multi_query") else heads),
        head_dim=config.get("head_dim") or hidden // heads,
        vocab_size=need("vocab_size"),
        tied_embeddings=bool(config.get("tie_word_embeddings", kind in TIED_TYPES or kind.startswith(TIED_FAMILIES))),
        gated_mlp=gated,
        source="config.json",
        context=context,
        sliding_window=window,
        sliding_share=share,
        norms_per_layer=4 if kind.startswith(("gemma2", "gemma3")) else 2,
        qk_norm=kind.startswith(("qwen3", "gemma3")),
        attention_softcap=config.get("attn_logit_softcapping"),
    )
    return _with_biases(shape, config, kind)


def _with_biases(shape: ModelShape, config: Mapping[str, Any], kind: str) -> ModelShape:
    """Biases of linear layers and norms, and learned positions."""
    # transformers' MPT has no biases at all, whatever its configuration says.
    everywhere = not shape.gated_mlp and kind != "mpt"
    attention = everywhere or bool(config.get("attention_bias"))
    return replace(
        shape,
        qkv_bias=attention or kind == "qwen2",
        output_bias=attention,
        mlp_bias=everywhere or bool(config.get("mlp_bias")),
        norm_bias=everywhere,
        learned_positions=(shape.context or 0) if kind == "gpt2" else 0,
    )


def _sliding(config: Mapping[str, Any], kind: str, num_layers: int) -> tuple[int | None, float]:
    """(window, share of the layers that look back no further); (None, 0) without."""
    window = config.get("sliding_window")
    # Qwen2 and Qwen3 name a window which they do not use unless told to.
    if not isinstance(window, int) or not config.get("use_sliding_window", not kind.startswith("qwen")):
        return None, 0.0
    kinds = config.get("layer_types")
    if kinds:
        sliding = sum(k == "sliding_attention" for k in kinds)
    elif kind == "gemma2":
        sliding = -(-num_layers // 2)  # every other layer, the first included
    elif kind.startswith("gemma3"):
        sliding = num_layers - num_layers // (config.get("sliding_window_pattern") or 6)
    elif kind.startswith("qwen"):
        sliding = max(0, num_layers - int(config.get("max_window_layers") or 0))
    else:
        sliding = num_layers
    return (window, sliding / num_layers) if sliding else (None, 0.0)
