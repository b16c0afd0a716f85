"""Commands about hardware and models: show, probe."""

from __future__ import annotations

from dataclasses import astuple, fields
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from genaccel import console
from genaccel.errors import UserError


def show(name: str) -> None:
    """Show what the catalogue knows about an accelerator, a cluster or a model, each number with its kind and source.

    Parameters
    ----------
    name
        As 'genaccel list' has it, a model's id on the hub, or a TOML file of an accelerator.
    """
    from genaccel.facts import Fact, document, facts, find, title

    found = find(name)

    def text() -> None:
        columns = [field.name for field in fields(Fact)]
        rows = [list(astuple(fact)) for fact in facts(found)]
        used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
        console.table(title(found), [columns[i] for i in used], [[row[i] for i in used] for row in rows], right=(1,))
        note = getattr(found, "note", "")
        if note:
            console.say(note)

    console.emit(document(found), text)


def probe(
    *,
    output: Annotated[Path, Parameter(alias="-o")] = Path("probed.toml"),
    processes: int = 2,
    name: str | None = None,
    device: str = "auto",
) -> None:
    """Measure this machine, matrix products, memory and links between processes, and write an accelerator file.

    Parameters
    ----------
    output
        TOML file to write; in a folder accelerators/ of GENACCEL_CATALOGUE it joins the catalogue.
    processes
        Processes between which links are measured; 1 measures none.
    name
        What to call it; by default 'probed-' and what its runtime calls it.
    device
        What to measure: auto, cpu, cuda or hpu.
    """
    from genaccel import devices
    from genaccel.facts import document, in_units
    from genaccel.hardware import read_accelerator
    from genaccel.probe_file import probe_to_file

    if processes < 1:
        raise UserError(f"--processes is {processes}, but it must be at least 1.", "")
    probed = probe_to_file(devices.get(device), output, processes, name)

    def text() -> None:
        rows = [[f.name, in_units(f.value, f.unit), f"{f.samples.spread:.0%}", f.note] for f in probed.figures]
        rows += [[what, "absent", "", reason] for what, reason in probed.absent.items()]
        console.table("Measured", ["what", "value", "spread", "how"], rows, right=(1, 2))
        console.say(f"Written to {output}; 'genaccel show {output}' reads it.")

    console.emit(document(read_accelerator(output)), text)
