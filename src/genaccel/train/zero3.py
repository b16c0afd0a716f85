"""DeepSpeed ZeRO: stages 1, 2 and 3 shard the optimizer, then gradients, then weights. Only this file imports DeepSpeed.

Its configuration is generated from ours and leaves nothing to DeepSpeed's defaults that changes results: clipping, for
one, is on by default there.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from typing import Any

import torch
from torch import nn

from genaccel.errors import UserError
from genaccel.train.config import TrainConfig
from genaccel.train.engine import BETAS, EPSILON, materialize, parameter_groups, trained
from genaccel.train.group import Group

MOMENTS = ("exp_avg", "exp_avg_sq")
BUCKET = 50_000_000  # elements reduced or prefetched at once
PERSISTENT = 10_000  # parameters up to this many elements stay whole: gains and biases are not worth a gather


def ds_config(config: TrainConfig, group: Group) -> dict[str, Any]:
    """DeepSpeed's configuration, complete and explicit."""
    accumulation = config.global_batch // (group.world_size * config.micro_batch_size)
    stage = int(config.strategy[-1])
    return {
        "train_batch_size": config.global_batch,
        "train_micro_batch_size_per_gpu": config.micro_batch_size,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": config.clip,
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": group.device.NAME != "cpu",
            "contiguous_gradients": True,
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
            "stage3_prefetch_bucket_size": BUCKET,
            "stage3_max_live_parameters": 10 * BUCKET,
            "stage3_max_reuse_distance": 10 * BUCKET,
            "stage3_param_persistence_threshold": PERSISTENT,
        },
        "bf16": {"enabled": config.precision == "bf16"},
        "fp16": {"enabled": config.precision == "fp16", "loss_scale": 0},
        # Our optimizer is torch's: DeepSpeed's own would be compiled for the CPU first.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "wall_clock_breakdown": False,
        "steps_per_print": 1 << 31,
    }


def wrap(
    module: nn.Module,
    layers: Sequence[nn.Module],
    config: TrainConfig,
    group: Group,
    fill: Callable[[str], torch.Tensor] | None = None,
) -> ZeroEngine:
    """The model in a DeepSpeed engine; ``UserError`` when DeepSpeed is not installed.

    Under stage 3 a module without memory gets its weights from ``fill``, layer by layer, and each layer is sharded
    before the next one is filled.
    """
    os.environ.setdefault("DS_ACCELERATOR", group.device.NAME)
    try:
        with redirect_stdout(sys.stderr):  # where its log goes from now on: standard output is for results
            import deepspeed
    except ImportError:
        raise UserError(
            f"Strategy {config.strategy} needs DeepSpeed, which is not installed.", "pip install 'genaccel[zero]'"
        ) from None
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module="torch.distributed"
    )  # names that DeepSpeed still uses
    wanted = ds_config(config, group)
    if fill is not None:
        names = {part: name for name, part in module.named_modules()}
        if not torch.distributed.is_initialized():
            raise UserError("Strategy zero3 needs at least two processes.", "Use --strategy single.")
        with _without_shared_memory_op(deepspeed):
            deepspeed.init_distributed()
            for unit in (*layers, module):
                materialize(unit, names, fill, group.device.torch_device())
                deepspeed.zero.Init(module=unit, config_dict_or_path=wanted)
    optimizer = torch.optim.AdamW(parameter_groups(module, config.weight_decay), config.learning_rate, BETAS, EPSILON)
    with _without_shared_memory_op(deepspeed):
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=wanted)
    assert engine.zero_optimization_stage() == int(config.strategy[-1]), "DeepSpeed took another stage"
    assert engine.gradient_clipping() == config.clip, "DeepSpeed clips at another norm"
    if config.strategy == "zero3":
        whole = [name for name, p in module.named_parameters() if not hasattr(p, "ds_id")]
        assert not whole, f"{whole[0]} was not sharded"
    return ZeroEngine(engine, module, config, wanted)


@contextmanager
def _without_shared_memory_op(deepspeed: Any) -> Iterator[None]:
    """Its CPU extension is compiled just in time, takes minutes and leaves a lock when it is killed; gloo does without."""
    compatible, name = deepspeed.ops.__compatible_ops__, "deepspeed_shm_comm"
    before = compatible.get(name)
    compatible[name] = False
    try:
        yield
    finally:
        compatible[name] = before


class ZeroEngine:
    """Steps by DeepSpeed."""

    def __init__(self, engine: Any, module: nn.Module, config: TrainConfig, ds: dict[str, Any]) -> None:
        """``engine`` is DeepSpeed's, around ``module``."""
        self.engine, self.module, self.config, self.ds = engine, module, config, ds
        self.model: nn.Module = engine
        self.updates, self._last = 0, True

    def exchange(self, last: bool) -> AbstractContextManager[Any]:
        """DeepSpeed counts micro-batches itself; all but the last are reported in ``backward``."""
        self._last = last
        return nullcontext()

    def autocast(self) -> AbstractContextManager[Any]:
        """DeepSpeed holds half-precision weights beside fp32 ones."""
        return nullcontext()

    def backward(self, loss: torch.Tensor) -> None:
        """Accumulate; the loss is normalized by the loop, so DeepSpeed divides by nothing but the number of processes."""
        self.engine.backward(loss, scale_wrt_gas=False)
        if not self._last:
            self.engine.step()

    def step(self, learning_rate: float) -> float:
        """Clip, update, forget the gradients."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        self.engine.step()
        self.updates += 1
        norm = self.engine.get_global_grad_norm()
        return float("nan") if norm is None else float(norm)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Whole copies on the host, gathered one parameter at a time."""
        from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state

        self._link_moments()
        found = {}
        for name, parameter in trained(self.module).items():
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            found[f"model.{name}"] = safe_get_full_fp32_param(parameter).reshape(shape).detach().cpu().clone()
            for key in MOMENTS:
                state = safe_get_full_optimizer_state(parameter, key)
                found[f"optimizer.{name}.{key}"] = state.reshape(shape).detach().cpu().clone()
        return found

    def _link_moments(self) -> None:
        """Moments as zeros where no update has made them yet; in stages 1 and 2 also known to their parameters.

        DeepSpeed itself does the latter after the first update of the first group only, which forgets the others.
        """
        zero = self.engine.optimizer
        sharded = self.config.strategy == "zero3"
        for flat in zero.fp32_partitioned_groups_flat if sharded else zero.single_partition_of_fp32_groups:
            state = zero.optimizer.state[flat]
            for key in MOMENTS:
                if key not in state:
                    state[key] = torch.zeros_like(flat)
            state.setdefault("step", torch.zeros(()))
        if not sharded:
            zero._hp_optimizer_states_linked = False
            zero._lazy_init_hp_params_optimizer_state()

    def load(self, tensors: dict[str, torch.Tensor], updates: int) -> None:
        """Scatter ``tensors`` to the shards, and the fp32 weights to those that are computed with."""
        for name, parameter in trained(self.module).items():
            self._set(parameter, tensors[f"model.{name}"], None)
            for key in MOMENTS:
                self._set(parameter, tensors[f"optimizer.{name}.{key}"], key)
        for state in self.engine.optimizer.optimizer.state.values():
            if "step" in state:
                state["step"].fill_(updates)
        self.updates = updates

    def _set(self, parameter: Any, value: torch.Tensor, key: str | None) -> None:
        import deepspeed
        from deepspeed.utils import safe_set_full_fp32_param, safe_set_full_optimizer_state

        if self.config.strategy != "zero3":
            if key is None:
                safe_set_full_fp32_param(parameter, value)
                with torch.no_grad():
                    parameter.copy_(value)
            else:
                safe_set_full_optimizer_state(parameter, value, key)
            return
        self._set_local(parameter, value, key)
        if key is None:
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
                parameter.copy_(value)

    def _set_local(self, parameter: Any, value: torch.Tensor, key: str | None) -> None:
        """This process's part of a stage-3 tensor; the last one's is padded when the elements do not divide."""
        from deepspeed.utils import (
            safe_get_local_fp32_param,
            safe_get_local_optimizer_state,
            safe_set_local_fp32_param,
            safe_set_local_optimizer_state,
        )

        part = safe_get_local_fp32_param(parameter) if key is None else safe_get_local_optimizer_state(parameter, key)
        size, rank = part.numel(), torch.distributed.get_rank()
        flat = value.flatten()
        mine = torch.zeros(size, dtype=flat.dtype)
        here = flat[rank * size : (rank + 1) * size]
        mine[: here.numel()] = here
        if key is None:
            safe_set_local_fp32_param(parameter, mine.to(part.device))
        else:
            safe_set_local_optimizer_state(parameter, mine.to(part.device), key)

    def whole_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The fp32 weights, gathered one parameter at a time."""
        from deepspeed.utils import safe_get_full_fp32_param

        for name, parameter in trained(self.module).items():
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            yield name, safe_get_full_fp32_param(parameter).reshape(shape).detach().cpu()

    def describe(self) -> dict[str, Any]:
        """What was really wrapped, and the configuration that DeepSpeed was given."""
        sharded = sum(hasattr(p, "ds_id") for p in self.module.parameters())
        return {
            "strategy": self.config.strategy,
            "wrapped": type(self.engine).__name__,
            "stage": int(self.engine.zero_optimization_stage()),
            "sharded_parameters": sharded,
            "ds_config": self.ds,
        }
