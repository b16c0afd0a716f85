"""FLOPs and bytes of a decoder language model's parts, in closed form: what prefill, decode and training are made of.

A multiplication and an addition count as two FLOPs. Experts: every token is multiplied with the experts that it is sent
to, but a step reads every expert that any of its tokens was sent to.
"""

from __future__ import annotations

from dataclasses import dataclass

from genaccel.shapes import ModelShape


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder, dense or a mixture of experts. ``approximate`` says that only its parameter count is known.

    ``intermediate_size`` is that of one expert where there are experts; ``shared_size`` is the width that all tokens go
    through beside them.
    """

    name: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    tied_embeddings: bool = False
    gated_mlp: bool = True
    num_experts: int = 0
    experts_per_token: int = 0
    shared_size: int = 0
    sliding_window: int | None = None
    sliding_share: float = 0.0
    context: int | None = None
    approximate: bool = False

    @property
    def attention_weights(self) -> int:
        """Weights of the four projections of a layer."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        return self.hidden_size * (2 * queries + 2 * keys)

    @property
    def expert_weights(self) -> int:
        """Weights of one expert of a layer, or of its only MLP."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * self.intermediate_size

    @property
    def shared_weights(self) -> int:
        """Weights of a layer's MLP that all tokens go through beside the experts."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * self.shared_size

    @property
    def mlp_width(self) -> int:
        """Channels of the MLP that one token goes through."""
        return self.intermediate_size * max(1, self.experts_per_token) + self.shared_size

    @property
    def head_weights(self) -> int:
        """Weights of the output head, which are the embedding's when tied."""
        return self.vocab_size * self.hidden_size

    @property
    def num_weights(self) -> int:
        """All weights in matrices, embedding and head included."""
        mlp = self.expert_weights * max(1, self.num_experts) + self.shared_weights
        heads = self.head_weights * (1 if self.tied_embeddings else 2)
        return self.num_layers * (self.attention_weights + mlp) + heads

    @property
    def layer_weights_per_token(self) -> int:
        """Weights of all layers that a token is multiplied with."""
        mlp = self.expert_weights * max(1, self.experts_per_token) + self.shared_weights
        return self.num_layers * (self.attention_weights + mlp)

    def layer_weights_read(self, tokens: float) -> float:
        """Weights of all layers that a step with ``tokens`` tokens reads: experts that no token was sent to are not."""
        mlp = float(self.expert_weights)
        if self.num_experts:
            unused = (1 - self.experts_per_token / self.num_experts) ** tokens
            mlp = self.expert_weights * self.num_experts * (1 - unused) + self.shared_weights
        return self.num_layers * (self.attention_weights + mlp)

    def looked_back(self, context: float) -> float:
        """Tokens that a token at position ``context`` looks at, averaged over layers."""
        if self.sliding_window is None:
            return context
        return (1 - self.sliding_share) * context + self.sliding_share * min(context, self.sliding_window)

    def causal_pairs(self, length: float) -> float:
        """Pairs of tokens that attend in a sequence of ``length``, averaged over layers."""
        full = length * (length + 1) / 2
        if self.sliding_window is None or length <= self.sliding_window:
            return full
        window = self.sliding_window
        sliding = window * (window + 1) / 2 + (length - window) * window
        return (1 - self.sliding_share) * full + self.sliding_share * sliding

    def attention_flops(self, pairs: float) -> float:
        """Scores and weighted values of all layers for so many pairs of tokens, forward."""
        return 4.0 * self.num_layers * self.num_heads * self.head_dim * pairs

    def cache_bytes_per_token(self, element: float, shards: int = 1) -> float:
        """Keys and values of a token on one of ``shards`` cards; a head is not cut, so that few heads are kept twice."""
        heads = max(self.num_kv_heads / shards, 1.0)
        return 2.0 * self.num_layers * heads * self.head_dim * element


def decoder_of(shape: ModelShape) -> Decoder:
    """The catalogue's shape as its arithmetic sees it."""
    experts = shape.num_experts
    return Decoder(
        name=shape.name,
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab_size,
        tied_embeddings=shape.tied_embeddings,
        gated_mlp=shape.gated_mlp,
        num_experts=experts if experts > 1 else 0,
        experts_per_token=shape.experts_per_token if experts > 1 else 0,
        sliding_window=shape.sliding_window,
        sliding_share=shape.sliding_share,
        context=shape.context,
    )


def approximate_decoder(name: str, billions: float) -> Decoder:
    """A decoder with so many parameters and usual proportions: heads of 128, 32,000 words, an MLP as wide as is left."""
    parameters = billions * 1e9
    layers = max(2, round(32 * (parameters / 6.7e9) ** 0.37))  # 32 at 7B, 80 at 70B
    # 12.1 hidden^2 a layer, and two tables of 32,000 words.
    root = ((64_000**2 + 4 * 12.1 * layers * parameters) ** 0.5 - 64_000) / (2 * 12.1 * layers)
    hidden = max(128, round(root / 128) * 128)
    heads = max(1, hidden // 128)
    kv_heads = heads if billions < 10 else max(1, heads // 8)
    attention = hidden * 2 * (heads + kv_heads) * 128
    inner = max(128, round((parameters - 64_000 * hidden - layers * attention) / (3 * hidden * layers)))
    return Decoder(name, layers, hidden, inner, heads, kv_heads, 128, 32_000, approximate=True)
