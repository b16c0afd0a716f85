"""From a question to features and seconds: which time model answers it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from genaccel.predict.constants import Array, Corrections, TimeModel, corrections_of
from genaccel.predict.fitting import stack_features
from genaccel.predict.imaging import IMAGING, Drawing, drawing_features
from genaccel.predict.serving import SERVING, Request, request_features
from genaccel.predict.training import TRAINING, TrainingStep, step_features

Asked = Request | TrainingStep | Drawing
MODELS = {"training": TRAINING, "serving": SERVING, "imaging": IMAGING}


def model_of(asked: Asked) -> TimeModel:
    """The time model that answers such a question."""
    if isinstance(asked, TrainingStep):
        return TRAINING
    return SERVING if isinstance(asked, Request) else IMAGING


def errors_like(asked: Asked) -> str:
    """Whose errors say how far off an answer may be: those of its time model, but drawing says nothing of training."""
    return "imaging training" if isinstance(asked, Drawing) and asked.trains else model_of(asked).name


def on_several(asked: Asked) -> bool:
    """Whether several cards work on one answer."""
    return (asked.shards if isinstance(asked, Request) else asked.cards) > 1


def features_of(asked: Asked) -> dict[str, float]:
    """Its features by name."""
    if isinstance(asked, TrainingStep):
        return step_features(asked)
    return request_features(asked) if isinstance(asked, Request) else drawing_features(asked)


def seconds_of(questions: Sequence[Asked], corrections: Corrections | None = None) -> Array:
    """Seconds of many questions of one kind at once."""
    if not questions:
        return np.zeros(0)
    model = model_of(questions[0])
    known = corrections or corrections_of(model)
    by_key = {key: known.logarithms(key) for key in {q.key for q in questions}}
    logarithms = np.array([by_key[q.key] for q in questions])
    return model.seconds(logarithms, stack_features(model.features, [features_of(q) for q in questions]))


def parts_of(asked: Asked, corrections: Corrections | None = None) -> dict[str, float]:
    """Seconds by part of one question."""
    model = model_of(asked)
    known = corrections or corrections_of(model)
    logarithms = known.logarithms(asked.key)[None, :]
    found = model.parts(model.named(logarithms), stack_features(model.features, [features_of(asked)]))
    return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in found.items()}
