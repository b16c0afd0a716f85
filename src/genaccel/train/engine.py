"""What a strategy gives the loop: the wrapped model and how one step is taken with it.

``Engine`` is plain torch: an optimizer over the parameters that the process sees. Single process, DDP and FSDP differ
in what they wrap and in how they hold back the exchange of gradients; DeepSpeed has an engine of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from genaccel.devices import Device
from genaccel.train.config import TrainConfig

LOSS_SCALE = "optimizer.loss_scale"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
BETAS, EPSILON = (0.9, 0.999), 1e-8


class Steps(Protocol):
    """What the loop asks of a strategy."""

    model: nn.Module
    updates: int
    """Optimizer steps so far."""

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Around the forward and backward pass of a micro-batch; only the step's ``last`` exchanges gradients."""

    def autocast(self) -> AbstractContextManager[Any]:
        """Around the forward pass."""

    def backward(self, loss: torch.Tensor) -> None:
        """Add the gradient of ``loss`` to what has been accumulated; the exchange takes the mean over processes."""

    def step(self, learning_rate: float) -> float:
        """Clip, update, forget the gradients; returns the gradient's norm before clipping."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Everything that training changes, by name: 'model.N', 'optimizer.N.exp_avg', 'optimizer.N.exp_avg_sq'."""

    def load(self, tensors: dict[str, torch.Tensor], updates: int) -> None:
        """Go on from ``tensors``, as ``tensors()`` gave them or filled in place, after ``updates`` optimizer steps."""

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every trained parameter by name, gathered one at a time on the host; all processes must ask together."""

    def describe(self) -> dict[str, Any]:
        """What was really wrapped, for the record."""


@dataclass
class Engine:
    """Steps by plain torch. ``module`` is the bare model, whose names of parameters are those of the saved model."""

    model: nn.Module
    module: nn.Module
    config: TrainConfig
    device: Device
    about: dict[str, Any]
    hold: Callable[[], AbstractContextManager[Any]] | None = None
    autocasts: bool = True
    updates: int = 0
    optimizer: torch.optim.Optimizer = field(init=False)
    scaler: torch.amp.GradScaler | None = None

    def __post_init__(self) -> None:
        """The optimizer over the parameters as they are after wrapping."""
        fused = self.device.NAME in ("cpu", "cuda")
        groups = parameter_groups(self.module, self.config.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, self.config.learning_rate, BETAS, EPSILON, fused=fused)
        if self.config.precision == "fp16":
            self.scaler = torch.amp.GradScaler(self.device.torch_device().type)

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        """Hold the exchange back until the step's last micro-batch."""
        return nullcontext() if last or self.hold is None else self.hold()

    def autocast(self) -> AbstractContextManager[Any]:
        """Half-precision arithmetic on fp32 weights, unless the strategy casts by itself."""
        if self.config.precision == "fp32" or not self.autocasts:
            return nullcontext()
        return torch.autocast(self.device.torch_device().type, DTYPES[self.config.precision])

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate gradients, scaled up in fp16."""
        scaled = loss if self.scaler is None else self.scaler.scale(loss)
        scaled.backward()  # type: ignore[no-untyped-call]

    def step(self, learning_rate: float) -> float:
        """Clip, update, forget the gradients."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        norm = nn.utils.clip_grad_norm_(parameters, self.config.clip or float("inf"))
        if self.scaler is None:
            self.optimizer.step()
            self.updates += 1
        else:
            before = self.scaler.get_scale()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.updates += self.scaler.get_scale() >= before  # it falls where gradients overflowed: no update then
        self.optimizer.zero_grad(set_to_none=True)
        return float(whole(norm))

    def tensors(self) -> dict[str, torch.Tensor]:
        """The parameters and moments themselves, not copies, and fp16's loss scale with the steps since it last changed."""
        found = {}
        if self.scaler is not None:
            scale = self.scaler.state_dict()
            found[LOSS_SCALE] = torch.tensor([scale["scale"], scale["_growth_tracker"]], dtype=torch.float64)
        for name, parameter in trained(self.module).items():
            found[f"model.{name}"] = parameter.detach()
            state = self.optimizer.state[parameter]
            for key in ("exp_avg", "exp_avg_sq"):
                if key not in state:
                    state[key] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                found[f"optimizer.{name}.{key}"] = state[key]
            state.setdefault("step", torch.zeros((), dtype=torch.float32, device=parameter.device))
        return found

    def load(self, tensors: dict[str, torch.Tensor], updates: int) -> None:
        """Parameters and moments were filled in place; what is left is the number of updates and the loss scale."""
        self.updates = updates
        if self.scaler is not None:
            scale, unchanged = tensors[LOSS_SCALE].tolist()
            self.scaler.load_state_dict(self.scaler.state_dict() | {"scale": scale, "_growth_tracker": int(unchanged)})
        for state in self.optimizer.state.values():
            state["step"].fill_(updates)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Shards are gathered one parameter at a time."""
        for name, parameter in trained(self.module).items():
            yield name, whole(parameter.detach()).cpu()

    def describe(self) -> dict[str, Any]:
        """What was really wrapped."""
        return self.about


def trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name; tied ones once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; gains and biases do not."""
    parameters = list(trained(module).values())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A sharded tensor gathered; others as they are."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def materialize(
    unit: nn.Module, names: dict[nn.Module, str], fill: Callable[[str], torch.Tensor], device: torch.device
) -> None:
    """Give memory and weights to what has none yet in ``unit``, which is sharded next and so holds them for a moment."""
    shared: dict[int, nn.Parameter] = {}
    for part in unit.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            if not parameter.is_meta:
                continue
            if id(parameter) not in shared:  # a tied weight stays one tensor
                values = fill(f"{names[part]}.{name}".lstrip(".")).to(device, parameter.dtype, copy=True)
                shared[id(parameter)] = nn.Parameter(values, parameter.requires_grad)
            setattr(part, name, shared[id(parameter)])
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, buffer.to(device))
