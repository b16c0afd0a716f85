"""Rows about generating text: what 'tokens/s' counts, how many cards hold a copy, which software ran."""

from __future__ import annotations

import re

from genaccel.predict.chips import Chip, published_chip
from genaccel.predict.published_models import find_decoder
from genaccel.predict.rows import Cells, Question, Unpredictable, in_notes, number_in, slug
from genaccel.predict.serving import FORMATS, MEMORY_SHARE, Request

SHORT_PROMPT = 16
"""Tokens of a script's default prompt, where the row gives none."""
DATA_SETS = {"gpt-j": (830, 69, 4), "mixtral": (280, 146, 1), "llama": (294, 293, 1)}
"""MLPerf's data sets: average tokens of a prompt and of an answer, and beams."""
MOST_AT_ONCE = {"mlperf": 1024}


def serving_question(cells: Cells) -> Question:
    """What a row about text generation asks. Raises ``Unpredictable`` with the reason."""
    argonne = "argonne" in cells["source"].lower()
    chip = published_chip(cells["device"], argonne)
    if chip is None:
        raise Unpredictable(f"the device {cells['device']} is not in the catalogue")
    if "mamba" in cells["model"].lower():
        raise Unpredictable("state-space models are not decoders with attention")
    model, warnings = find_decoder(cells["model"], number_in(cells["params_b"]))
    stack = _stack(cells)
    cards = cards_of(cells)
    weights, cache_element = _format(cells, chip, stack)
    prompt = number_in(cells["prompt_len"]) or SHORT_PROMPT
    new = number_in(cells["new_tokens"])
    batch = number_in(cells["batch"])
    beams, shards, replicas = 1, cards, 1
    if stack.startswith("mlperf") and new is None:
        kind = next((k for k in DATA_SETS if k in cells["model"].lower()), "llama")
        prompt, new, beams = DATA_SETS[kind]
        size = model.num_weights * FORMATS[weights].bytes_per_weight
        shards = 1
        while shards < cards and size > 0.75 * MEMORY_SHARE * chip.memory_bytes * shards:
            shards *= 2
        shards = min(shards, cards)
        replicas = max(1, cards // shards)
    if new is None:
        raise Unpredictable("neither the row nor its protocol says how many tokens are generated")
    request = Request(
        model, chip, stack, batch, prompt, new, ((weights, 1.0),), cache_element, shards, replicas, beams, lenient=True
    )
    if batch is None and stack in MOST_AT_ONCE:
        request = _with_batch(request, min(max(request.most_sequences, 1.0), MOST_AT_ONCE[stack]))
    return _answer(cells, request, cards, warnings)


def _with_batch(request: Request, batch: float) -> Request:
    from dataclasses import replace

    return replace(request, batch=batch)


def _answer(cells: Cells, request: Request, cards: int, warnings: tuple[str, ...]) -> Question:
    """How the row's metric follows from the time of a request."""
    from dataclasses import replace

    metric, unit = cells["metric"].lower(), cells["unit"].lower()
    sequences = request.sequences * request.replicas
    thousand = 1e3 if unit.startswith("ms") else 1.0
    if metric in ("ttft", "prefill_latency"):
        return Question(replace(request, asks="prefill"), thousand, False, warnings)
    if "per_token" in metric and "latency" in metric:
        return Question(replace(request, asks="step"), thousand, False, warnings)
    if "latency" in metric:
        return Question(request, thousand, False, warnings)
    if "samples" in metric or "request" in metric:
        return Question(request, sequences, True, warnings)
    tokens = request.new + (request.prompt if metric.startswith("total") else 0)
    per_card = cards if "per_gpu" in metric or "/gpu" in unit else 1
    if "token" not in metric and "token" not in unit:
        raise Unpredictable(f"the metric {cells['metric']} is not known")
    return Question(request, sequences * tokens / per_card, True, warnings)


def cards_of(cells: Cells) -> int:
    """Cards of the row, from its column or from the name of the system in its notes."""
    given = number_in(cells["cards"])
    if given:
        return int(given)
    named = in_notes(r"(\d+)x(?:H|M|G|B|A)\d", cells) or in_notes(r"x(\d+)_TRT", cells) or in_notes(r"x(\d+)\b", cells)
    return int(named.group(1)) if named else 1


def _stack(cells: Cells) -> str:
    """The software that ran, under the name that its constants have."""
    source, metric = cells["source"].lower(), cells["metric"].lower()
    framework = in_notes(r"framework=([^;]+)", cells)
    if framework:
        return slug(framework.group(1))
    if "mlperf" in source:
        return "mlperf"
    if "optimum-habana" in source:
        return "optimum-habana"
    if "tensorrt-llm" in source:
        return "tensorrt-llm-0.6" if "per_gpu" in metric or metric == "ttft" else "tensorrt-llm-inflight"
    return "fastertransformer" if "kipply" in source else slug(cells["source"])


def _format(cells: Cells, chip: Chip, stack: str) -> tuple[str, float]:
    """(format of the weights, bytes of a number in the cache)."""
    text = cells["precision"].lower()
    if "per submission" in text:
        return ("fp4", 1.0) if chip.family == "blackwell" else ("fp8", 1.0)
    if text.startswith(("fp8", "e4m3")):
        return "fp8", 1.0
    if "fp4" in text:
        return "fp4", 1.0
    if re.match(r"int4|w4|awq|gptq", text):
        return "int4-weights", 2.0
    if re.match(r"int8|w8", text):
        return ("int8-weights" if "w8a16" in text or "weight" in text else "int8"), 2.0
    return ("fp32", 4.0) if text.startswith("fp32") else ("bf16", 2.0)
