"""Commands about hardware and models: show, probe."""

from __future__ import annotations

from dataclasses import astuple, fields

from genaccel import console
from genaccel.commands import app


@app.command
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
