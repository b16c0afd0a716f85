"""The loop on one process: what stops it, what it keeps, and that it learns."""

from __future__ import annotations

import math

import pytest
import torch
from tests.train.random_tokens import RandomTokens

from genaccel import models
from genaccel.devices import get
from genaccel.errors import UserError
from genaccel.train import attention
from genaccel.train.checkpoint import Checkpoints, checkpoints_in, read_progress
from genaccel.train.config import TrainConfig
from genaccel.train.group import Group
from genaccel.train.loop import Run, train
from genaccel.train.meter import Meter, gather_steps, step_samples
from genaccel.train.strategies import wrap
from genaccel.train.traffic import Traffic

GROUP = Group(get("cpu"))


def made(folder, num_steps=4, workload=None, **config):
    config = TrainConfig(**{"global_batch": 4} | config)
    loaded = models.load(models.resolve(str(folder)))
    attention.use(loaded.model)
    engine = wrap(loaded.model.train(), [], config, GROUP)
    workload = workload or RandomTokens(258, config.global_batch, config.micro_batch_size)
    run = Run(workload, engine, config, GROUP, Meter(GROUP, Traffic(GROUP)), num_steps)
    if config.checkpoints:
        run.checkpoints = Checkpoints(config.checkpoints, config.keep, GROUP, {"seed": 0})
    return run


class SameTokens(RandomTokens):
    """Every step holds the same samples."""

    def samples(self, step):
        return super().samples(0)


def test_it_learns_what_it_sees_again_and_again(tiny_llama):
    run = made(tiny_llama, 30, SameTokens(258, 4, 4), learning_rate=3e-3, schedule="constant")
    train(run)
    assert run.losses[0] == pytest.approx(math.log(258), rel=0.05)
    assert run.losses[-1] < 0.7 * run.losses[0]


class Spoiled(RandomTokens):
    """The loss of step 2 is no number."""

    def micro_batches(self, step):
        self.__dict__["now"] = step
        return super().micro_batches(step)

    def loss_sum(self, model, batch):
        return super().loss_sum(model, batch) * (float("nan") if self.__dict__["now"] == 2 else 1.0)


def test_a_loss_that_is_no_number_stops_before_the_update(tiny_llama, tmp_path):
    run = made(tiny_llama, 6, Spoiled(258, 4, 4), checkpoints=tmp_path, save_every=1)
    with pytest.raises(UserError) as caught:
        train(run)
    assert "step 3 is nan" in caught.value.message
    assert "samples [8, 9, 10, 11]" in caught.value.message
    assert all(torch.isfinite(w).all() for _, w in run.engine.whole_weights())
    assert read_progress(checkpoints_in(tmp_path)[-1]).step == 2


class Overflowing(RandomTokens):
    """The gradients of step 1 are larger than fp16's scale allows."""

    def micro_batches(self, step):
        self.__dict__["now"] = step
        return super().micro_batches(step)

    def loss_sum(self, model, batch):
        return super().loss_sum(model, batch) * (1e30 if self.__dict__["now"] == 1 else 1.0)


def test_fp16_goes_on_with_its_loss_scale_and_counts_what_it_updated(tiny_llama, tmp_path):
    def overflowing(**config):
        return made(tiny_llama, 5, Overflowing(258, 4, 4), precision="fp16", **config)

    whole, first = overflowing(), overflowing(checkpoints=tmp_path)
    train(whole)
    told = iter([False, False, True])
    first.told_to_end = lambda: next(told)
    train(first)
    assert first.engine.updates == read_progress(checkpoints_in(tmp_path)[-1]).updates == 2  # of three steps
    second = overflowing(checkpoints=tmp_path)
    path, progress = second.checkpoints.latest()
    second.checkpoints.load(path, progress, second.engine)
    second.first_step, second.losses = progress.step, list(progress.losses)
    train(second)
    assert second.losses == whole.losses
    assert second.engine.scaler.get_scale() == whole.engine.scaler.get_scale() == 2**15
    assert second.engine.scaler.state_dict() == whole.engine.scaler.state_dict()
    for (name, a), (_, b) in zip(whole.engine.whole_weights(), second.engine.whole_weights(), strict=True):
        assert torch.equal(a, b), name


def test_told_to_end_it_saves_and_a_second_run_goes_on(tiny_llama, tmp_path):
    whole = made(tiny_llama, 6)
    train(whole)
    first = made(tiny_llama, 6, checkpoints=tmp_path)
    told = iter([False, False, True])
    first.told_to_end = lambda: next(told)
    outcome = train(first)
    assert (outcome.step, outcome.ended_early) == (3, True)
    second = made(tiny_llama, 6, checkpoints=tmp_path)
    path, progress = second.checkpoints.latest()
    assert path == outcome.checkpoint
    second.checkpoints.load(path, progress, second.engine)
    second.first_step, second.losses = progress.step, list(progress.losses)
    train(second)
    assert second.losses == whole.losses
    # Speed is of the steps that this run took: those before are not counted as if they had cost nothing.
    seconds, rates = step_samples(gather_steps(GROUP, second.meter.steps), num_warmup=1)
    assert len(rates.values) == 2
    assert all(
        r * s == pytest.approx(t.tokens)
        for r, s, t in zip(rates.values, seconds.values, second.meter.steps[1:], strict=True)
    )


def test_the_last_checkpoints_are_kept_and_nothing_half_written(tiny_llama, tmp_path):
    train(made(tiny_llama, 5, checkpoints=tmp_path, save_every=1, keep=2))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]
    assert not list(tmp_path.rglob("*.pt")), "safetensors only"
    assert {f.suffix for f in (tmp_path / "step-00000005").iterdir()} == {".safetensors", ".json"}


def test_a_checkpoint_of_another_run_is_refused_by_name(tiny_llama, tmp_path):
    train(made(tiny_llama, 1, checkpoints=tmp_path, save_every=1))
    other = Checkpoints(tmp_path, 2, GROUP, {"seed": 1})
    with pytest.raises(UserError, match="its seed is 0, not 1"):
        other.latest()


def test_a_torn_progress_file_is_named(tiny_llama, tmp_path):
    train(made(tiny_llama, 1, checkpoints=tmp_path, save_every=1))
    file = tmp_path / "step-00000001" / "progress.json"
    file.write_text(file.read_text()[:30])
    with pytest.raises(UserError, match=r"progress\.json is not JSON"):
        Checkpoints(tmp_path, 2, GROUP, {"seed": 0}).latest()


def test_phases_make_up_the_step(tiny_llama):
    run = made(tiny_llama, 3, micro_batch=1)
    train(run)
    for step in run.meter.steps:
        phases = step.data + step.forward + step.backward + step.waiting + step.optimizer
        assert phases == pytest.approx(step.seconds, rel=0.1, abs=2e-3)
        assert min(step.forward, step.backward, step.optimizer) > 0


def test_gradients_are_clipped_to_the_given_norm(tiny_llama):
    """A norm far below the gradient's makes AdamW's first step no smaller, but SGD-like moments do show it."""
    free, clipped = made(tiny_llama, 1, clip=0.0), made(tiny_llama, 1, clip=0.01)
    train(free)
    train(clipped)
    norm = free.meter.steps[0].gradient_norm
    assert clipped.meter.steps[0].gradient_norm == pytest.approx(norm), "the norm before clipping is reported"
    moments = [
        next(v for k, v in run.engine.tensors().items() if k.endswith("q_proj.weight.exp_avg"))
        for run in (free, clipped)
    ]
    torch.testing.assert_close(moments[1], moments[0] * (0.01 / norm), rtol=1e-3, atol=1e-9)
