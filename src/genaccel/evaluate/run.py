"""Judge a model: perplexity, tokens per second and peak memory, as figures for a record."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genaccel import console
from genaccel.records import Figure

if TYPE_CHECKING:
    from genaccel.devices import Device
    from genaccel.evaluate.perplexity import WindowProtocol
    from genaccel.evaluate.throughput import ThroughputProtocol
    from genaccel.measure import Samples
    from genaccel.models import LoadedModel


@dataclass(frozen=True)
class JudgeConfig:
    """How a model is judged.

    Parameters
    ----------
    text
        Text for the perplexity: pydoc (built in), wikitext2, or the path of a text file.
    data_dir
        Folder with evaluation data (wikitext-2/wiki.test.raw ...); else $GENACCEL_DATA, else the hub.
    window
        Tokens per window.
    stride
        Tokens that a window moves on; defaults to the window, so that windows do not overlap.
    limit
        Score only the first so many windows; by default the whole text.
    speed
        Measure prefill and decode tokens per second.
    batch
        Sequences per batch in the speed measurement.
    prompt_tokens
        Prompt length in the speed measurement.
    new_tokens
        New tokens in the speed measurement.
    repeats
        Repeats of each speed measurement; the median is reported.
    """

    _: KW_ONLY
    text: str = "pydoc"
    data_dir: Path | None = None
    window: int = 1024
    stride: int | None = None
    limit: int | None = None
    speed: bool = True
    batch: int = 1
    prompt_tokens: int = 256
    new_tokens: int = 32
    repeats: int = 5

    def windows(self) -> WindowProtocol:
        """The perplexity's protocol."""
        from genaccel.evaluate.perplexity import WindowProtocol

        return WindowProtocol(self.window, self.stride or self.window, self.limit)

    def throughput(self) -> ThroughputProtocol:
        """The speed's protocol."""
        from genaccel.evaluate.throughput import ThroughputProtocol

        return ThroughputProtocol(self.batch, self.prompt_tokens, self.new_tokens, num_repeats=self.repeats)

    def check(self, max_positions: int | None) -> None:
        """Raise ``UserError`` for whatever can be told to be wrong before a model is loaded."""
        from genaccel.corpora import load_corpus

        self.windows().check(max_positions)
        if self.speed:
            self.throughput().check(max_positions)
        load_corpus(self.text, "test", self.data_dir)


@dataclass(frozen=True)
class Judgement:
    """Figures, what is needed to trace them, and warnings."""

    figures: tuple[Figure, ...]
    details: dict[str, Any]
    warnings: tuple[str, ...]


def judge(loaded: LoadedModel, config: JudgeConfig, device: Device) -> Judgement:
    """Measure ``loaded`` as ``config`` says."""
    from genaccel.corpora import load_corpus
    from genaccel.evaluate.perplexity import score_windows, tokenize_windows
    from genaccel.evaluate.throughput import measure_throughput

    corpus = load_corpus(config.text, "test", config.data_dir)
    windows = tokenize_windows(loaded, corpus, config.windows())
    device.reset_peak_memory()
    with console.progress(f"Perplexity of {loaded.name}", len(windows.items)) as advance:
        scores = score_windows(loaded, windows, advance)
    figures = [Figure("perplexity", scores.perplexity, "1", "measured", windows.describe())]
    warnings: list[str] = []
    if config.speed:
        protocol = config.throughput()
        with console.status(f"Tokens per second of {loaded.name}"):
            rates = measure_throughput(loaded, device, protocol)
        figures.append(_rate("prefill_tokens_per_second", rates.prefill, protocol.describe("prefill")))
        figures.append(_rate("decode_tokens_per_second", rates.decode, protocol.describe("decode")))
        warnings = rates.warnings()
    scope = "resident set of the process" if device.NAME == "cpu" else "allocated on the device"
    peak = device.peak_memory_bytes()
    figures.append(Figure("peak_memory_bytes", peak, "B", "measured", f"peak while judging, {scope}"))
    details = {
        "text": {
            "name": corpus.name,
            "source": corpus.source,
            "sha256": corpus.sha256,
            "tokens": windows.num_tokens_in_text,
        },
        "scored_tokens": scores.num_tokens,
        "nll_by_window": list(scores.nll_by_window),
        "tokens_by_window": list(scores.tokens_by_window),
    }
    return Judgement(tuple(figures), details, tuple(warnings))


def _rate(name: str, samples: Samples, protocol: str) -> Figure:
    return Figure(name, samples.median, "tokens/s", "measured", protocol, samples.values, samples.spread)
