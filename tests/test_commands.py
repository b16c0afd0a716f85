"""The table of commands: what 'genaccel --help' says of each is what the command says of itself."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from cyclopts import App

from genaccel.commands import COMMANDS, app


@pytest.mark.parametrize("path", COMMANDS)
def test_help_is_the_first_line_of_the_command(path):
    module, _, name = path.partition(":")
    found = getattr(import_module(f"genaccel.commands.{module}"), {"list": "list_"}.get(name, name))
    own = found.help if isinstance(found, App) else found.__doc__.splitlines()[0]
    assert own == COMMANDS[path]
    assert app[name].name == (name,)


def test_help_imports_no_command():
    code = (
        "import sys; from genaccel.cli import main\n"
        "sys.argv = ['genaccel', '--help']\n"
        "try: main()\n"
        "finally: print([m for m in sys.modules if m.startswith('genaccel.commands.') or m in ('torch', 'numpy')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().endswith("[]")
    assert "finetune" in done.stdout
