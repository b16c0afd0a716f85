"""The learning rate as a function of the samples seen, so that processes and accumulation change nothing. No torch here."""

from __future__ import annotations

import math

from genaccel.train.config import TrainConfig


def learning_rate(config: TrainConfig, samples_seen: int, total_samples: int) -> float:
    """The rate for the step that begins after ``samples_seen`` samples.

    It rises linearly over ``warmup_samples``, counting the step's own samples so that the first step moves, and then
    falls to zero at ``total_samples`` along half a cosine or a line, or stays.
    """
    warmup = config.warmup_samples
    if samples_seen < warmup:
        return config.learning_rate * min(1.0, (samples_seen + config.global_batch) / warmup)
    progress = min(1.0, (samples_seen - warmup) / max(1, total_samples - warmup))
    if config.schedule == "cosine":
        return config.learning_rate * 0.5 * (1.0 + math.cos(math.pi * progress))
    if config.schedule == "linear":
        return config.learning_rate * (1.0 - progress)
    return config.learning_rate
