"""What predictions are asked for: the fields are the command line's options, their docstrings its help.

Options that are text take several values with commas; every combination is predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from genaccel.errors import UserError
from genaccel.hardware import find_cluster

if TYPE_CHECKING:
    from genaccel.predict.prediction import Prediction

Values = dict[str, Sequence[Any]]


def words(text: str) -> list[str]:
    """What commas separate."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers that commas separate."""
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise UserError(f"--{option} {text} is no list of whole numbers.", f"For example --{option} 1,2,4.") from None


def places(on: str, cluster: str | None) -> list[str]:
    """The accelerators that are asked for, or that of the cluster."""
    if cluster is not None:
        found = find_cluster(cluster).accelerator
        if on and words(on) != [found]:
            raise UserError(f"The cards of {cluster} are {found}, not {on}.", "Leave out --on or --cluster.")
        return [found]
    if not on:
        raise UserError("Neither --on nor --cluster says where.", "For example --on a100,h100.")
    return words(on)


@dataclass(frozen=True)
class AskedFinetuning:
    """Fine-tuning on other machines.

    Parameters
    ----------
    model
        Model of the catalogue, or its hub id.
    on
        Accelerators of the catalogue, with commas; by default the cluster's.
    cards
        Cards that train together.
    strategy
        single, ddp, zero1, zero2, zero3 or fsdp.
    batch
        Samples of an optimizer step over all cards.
    micro_batch
        Samples that a card computes at once; by default the most that fit and divide.
    length
        Tokens of a sample.
    precision
        bf16, fp16, fp32 or fp8.
    lora_rank
        Train adapters of this rank instead of all weights.
    activation_checkpointing
        Recompute activations in the backward pass instead of keeping them.
    attention
        auto, flash, or math, which writes out the scores.
    stack
        Software whose constants apply, such as llm-foundry, torchtitan or optimum-habana.
    cluster
        Cluster of the catalogue, for its links and prices.
    samples
        Samples of the whole job, for its time and cost.
    """

    model: str
    _: KW_ONLY
    on: str = ""
    cards: str = "8"
    strategy: str = "ddp"
    batch: str = "64"
    micro_batch: int | None = None
    length: str = "2048"
    precision: str = "bf16"
    lora_rank: int | None = None
    activation_checkpointing: bool = False
    attention: str = "auto"
    stack: str | None = None
    cluster: str | None = None
    samples: int | None = None

    def values(self) -> Values:
        """What is varied."""
        return {
            "on": places(self.on, self.cluster),
            "cards": numbers("cards", self.cards),
            "strategy": words(self.strategy),
            "global_batch": numbers("batch", self.batch),
            "length": numbers("length", self.length),
            "precision": words(self.precision),
            "attention": words(self.attention),
        }

    def ask(self, **chosen: Any) -> Prediction:
        """One combination."""
        from genaccel.predict.finetuning import Finetuning, predict_finetuning

        return predict_finetuning(
            Finetuning(
                self.model,
                micro_batch=self.micro_batch,
                lora_rank=self.lora_rank,
                checkpointing=self.activation_checkpointing,
                stack=self.stack,
                cluster=self.cluster,
                samples=self.samples,
                **chosen,
            )
        )


@dataclass(frozen=True)
class AskedInference:
    """Text generation on other machines.

    Parameters
    ----------
    model
        Model of the catalogue, or its hub id.
    on
        Accelerators of the catalogue, with commas; by default the cluster's.
    cards
        Cards that share the model (tensor parallelism).
    batch
        Sequences at once.
    prompt
        Tokens of a prompt.
    new
        Tokens generated for each.
    precision
        Of the weights: bf16, fp16, fp32, fp8, int8, int8-weights, int4-weights or fp4.
    stack
        Software whose constants apply, such as vllm, tensorrt-llm or optimum-habana.
    cluster
        Cluster of the catalogue, for its links.
    """

    model: str
    _: KW_ONLY
    on: str = ""
    cards: str = "1"
    batch: str = "1"
    prompt: str = "512"
    new: str = "512"
    precision: str = "bf16"
    stack: str | None = None
    cluster: str | None = None

    def values(self) -> Values:
        """What is varied."""
        return {
            "on": places(self.on, self.cluster),
            "cards": numbers("cards", self.cards),
            "batch": numbers("batch", self.batch),
            "prompt": numbers("prompt", self.prompt),
            "new": numbers("new", self.new),
            "precision": words(self.precision),
        }

    def ask(self, **chosen: Any) -> Prediction:
        """One combination."""
        from genaccel.predict.generating import Generating, predict_generating

        return predict_generating(Generating(self.model, stack=self.stack, cluster=self.cluster, **chosen))


@dataclass(frozen=True)
class AskedSuperres:
    """Super-resolution by diffusion on other machines.

    Parameters
    ----------
    model
        tiny, small or base, the networks of 'genaccel superres', or sdxl, stable-diffusion-1.5 or stable-diffusion-2.1.
    on
        Accelerators of the catalogue, with commas; by default the cluster's.
    cards
        Cards.
    batch
        Images on each card at once.
    size
        Pixels of a side.
    steps
        Passes of a draw.
    train
        Train; with --no-train, draw.
    precision
        bf16, fp16 or fp32.
    stack
        Software whose constants apply.
    cluster
        Cluster of the catalogue, for its links.
    """

    model: str = "base"
    _: KW_ONLY
    on: str = ""
    cards: str = "1"
    batch: str = "16"
    size: int | None = None
    steps: int | None = None
    train: bool = True
    precision: str = "bf16"
    stack: str | None = None
    cluster: str | None = None

    def values(self) -> Values:
        """What is varied."""
        return {
            "on": places(self.on, self.cluster),
            "cards": numbers("cards", self.cards),
            "batch": numbers("batch", self.batch),
            "precision": words(self.precision),
        }

    def ask(self, **chosen: Any) -> Prediction:
        """One combination."""
        from genaccel.predict.superresolving import Superresolving, predict_superresolving

        return predict_superresolving(
            Superresolving(
                self.model,
                size=self.size,
                steps=self.steps,
                train=self.train,
                stack=self.stack,
                cluster=self.cluster,
                **chosen,
            )
        )
