"""Fixtures shared by all tests: tiny models of several architectures with a byte-level tokenizer, made here, no hub."""

from __future__ import annotations

import os
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("house")

VOCABULARY = 256 + 2  # every byte, and two special tokens


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tests run in parallel as processes; threads inside them would only get in each other's way."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The evaluation data's folder, or a skip that says what is missing."""
    given = os.environ.get("GENACCEL_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("no evaluation data: set GENACCEL_DATA or put a shared/data folder beside the checkout")
    return folder


def byte_tokenizer(adds_bos: bool = False):
    """A tokenizer that knows every byte; with ``adds_bos`` it puts <s> in front, as Llama-2's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def _save(factory, name: str, config, adds_bos: bool = False) -> Path:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and gains away from 0 and 1, so that forgetting one shows
            parameter.add_(torch.randn_like(parameter) * 0.05)
    folder = factory.mktemp("models") / name
    model.save_pretrained(folder)
    byte_tokenizer(adds_bos).save_pretrained(folder)
    return folder


SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
}


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory) -> Path:
    """A Llama with grouped queries and a tied head."""
    from transformers import LlamaConfig

    return _save(tmp_path_factory, "tiny-llama", LlamaConfig(**SIZES, tie_word_embeddings=True))


@pytest.fixture(scope="session")
def tiny_llama_odd(tmp_path_factory) -> Path:
    """A Llama in which nothing divides by two: vocabulary, widths, numbers of weights."""
    from transformers import LlamaConfig

    odd = {"vocab_size": 259, "hidden_size": 63, "intermediate_size": 129, "head_dim": 10}
    config = LlamaConfig(
        **SIZES | odd | {"num_attention_heads": 3, "num_key_value_heads": 1}, tie_word_embeddings=False
    )
    return _save(tmp_path_factory, "tiny-llama-odd", config)


@pytest.fixture(scope="session")
def tiny_llama_untied(tmp_path_factory) -> Path:
    """A Llama with biases everywhere and a head of its own; its tokenizer adds a BOS."""
    from transformers import LlamaConfig

    config = LlamaConfig(**SIZES, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)
    return _save(tmp_path_factory, "tiny-llama-untied", config, adds_bos=True)


@pytest.fixture(scope="session")
def tiny_qwen2(tmp_path_factory) -> Path:
    """A Qwen2: biases on q, k and v."""
    from transformers import Qwen2Config

    return _save(tmp_path_factory, "tiny-qwen2", Qwen2Config(**SIZES, tie_word_embeddings=True))


@pytest.fixture(scope="session")
def tiny_gemma2(tmp_path_factory) -> Path:
    """A Gemma2: logits are soft-capped after the head, attention slides."""
    from transformers import Gemma2Config

    config = Gemma2Config(**SIZES, head_dim=16, sliding_window=16, final_logit_softcapping=3.0)
    return _save(tmp_path_factory, "tiny-gemma2", config)


@pytest.fixture(scope="session")
def tiny_gpt2(tmp_path_factory) -> Path:
    """A GPT-2: Conv1D layers, learned positions, tied head."""
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=128, bos_token_id=0, eos_token_id=1
    )
    return _save(tmp_path_factory, "tiny-gpt2", config)


ARCHITECTURES = ("tiny_llama", "tiny_llama_untied", "tiny_qwen2", "tiny_gemma2", "tiny_gpt2")


@pytest.fixture(params=ARCHITECTURES)
def tiny_model(request) -> Path:
    """Each tiny architecture in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process inside an empty folder: (exit code, stdout, stderr)."""
    import signal
    import sys

    from genaccel import cli, console

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GENACCEL_DATA", raising=False)

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["genaccel", *map(str, arguments)])
        before = signal.getsignal(signal.SIGTERM)
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code or 0
        finally:
            signal.signal(signal.SIGTERM, before)
            console.json_mode = False
        out, err = capsys.readouterr()
        return code, out, err

    return command
