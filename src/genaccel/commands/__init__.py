"""The commands: each parses, calls one function and prints. Heavy imports happen inside them.

Only the module of the command that runs is imported; ``COMMANDS`` is what 'genaccel --help' shows of the others.
"""

from __future__ import annotations

from cyclopts import App, Parameter

from genaccel import __version__

app = App(
    name="genaccel",
    help="Make generative AI models cheaper to run, and measure what that bought.",
    version=__version__,
    help_format="plaintext",
    default_parameter=Parameter(negative_iterable=()),
    suppress_keyboard_interrupt=False,  # cli.main says what Ctrl-C left
)
app.meta.suppress_keyboard_interrupt = False
Flat = Parameter(name="*")

COMMANDS = {
    "quantizing:quantize": "Quantize a model, judge it beside FP32, and leave a record (and, with --output, a checkpoint).",
    "quantizing:evaluate": "Judge a model or a quantized checkpoint by perplexity, tasks and speed, and leave a record.",
    "quantizing:sensitivity": "Score every decoder layer (phase 1) and write the report.",
    "quantizing:plan": "Make a precision plan (phase 2) from a sensitivity report, or measure that first, and write it for editing.",
    "quantizing:reproduce": "Redo the study: its quantization table (FP32, then cpu, a100 and gaudi2, fake and real), and super-resolution of dust.",
    "training:finetune": "Fine-tune a model under any strategy, measure every step, and leave a record.",
    "dust:superres": "Super-resolve maps of galactic dust by diffusion.",
    "recording:records": "List, show and export records.",
    "recording:compare": "Compare records that are alike in everything but one thing, as ratios with 95 % intervals; refuse unlike ones.",
    "results:report": "Write one self-contained report of records, and of predictions and published numbers beside them.",
    "catalogue:show": "Show what the catalogue knows about an accelerator, a cluster or a model, each number with its kind and source.",
    "catalogue:probe": "Measure this machine, matrix products, memory and links between processes, and write an accelerator file.",
    "asking:predict": "Time, memory and cost on accelerators that are not here. Values separated by commas make a table.",
    "advising:advise": "Ranked advice with predicted figures, what rules the rest out, and the evidence.",
    "predicting:validate": "Predict published rows and compare: errors, coverage and intervals by source, device and workload.",
    "predicting:calibrate": "Fit the constants of the time models to published rows, and say how far off left-out groups are.",
    "results:list": "Show what there is: devices, models, texts, formats, metrics, targets, and the catalogue of hardware.",
    "results:check": "Validate a run without running it: 'genaccel check quantize MODEL ...' with the flags the run would have.",
}
"""Module and command -> the first line of its docstring."""

for _path, _help in COMMANDS.items():
    _module, _, _name = _path.partition(":")
    _attribute = {"list": "list_"}.get(_name, _name)
    app.command(f"genaccel.commands.{_module}:{_attribute}", name=_name, help=_help)
