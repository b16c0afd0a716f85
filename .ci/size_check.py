"""The house rule on sizes: a file stays under about 300 lines and a function under about 50, and no file is a drawer.

Prints every offender and exits with 1. The bounds leave a little slack so that nobody golfs for a line.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

MAX_FILE_LINES = 320
MAX_FUNCTION_LINES = 60
DRAWERS = {"utils.py", "helpers.py", "base.py", "common.py", "misc.py"}


def problems_of(path: Path) -> list[str]:
    """One line for each rule that ``path`` breaks."""
    text = path.read_text(encoding="utf-8")
    found = []
    if path.name in DRAWERS:
        found.append(f"{path}: a name that says nothing")
    if (lines := text.count("\n")) > MAX_FILE_LINES:
        found.append(f"{path}: {lines} lines, more than {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                found.append(f"{path}:{node.lineno}: {node.name} has {length} lines, more than {MAX_FUNCTION_LINES}")
    return found


def main() -> int:
    """Check the package, the benchmarks and the tests."""
    root = Path(__file__).resolve().parents[1]
    files = [f for folder in ("src", "bench", "tests", ".ci") for f in sorted((root / folder).rglob("*.py"))]
    problems = [p for f in files for p in problems_of(f.relative_to(Path.cwd()) if f.is_relative_to(Path.cwd()) else f)]
    for problem in problems:
        sys.stdout.write(problem + "\n")
    sys.stdout.write(f"{len(files)} files checked, {len(problems)} too large or badly named\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
