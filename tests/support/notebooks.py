"""Notebooks without a kernel: `!command`, `%%writefile` and Python are all that those of the documentation use."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WRITE = "%%writefile "


def code_cells(file: Path) -> list[str]:
    """The text of each cell with code."""
    return ["".join(cell["source"]) for cell in json.loads(file.read_text())["cells"] if cell["cell_type"] == "code"]


def run_cells(file: Path, folder: Path, timeout_s: float) -> Iterator[str]:
    """What each cell prints, run one after the other in this folder. Raises what a cell raises, and for commands that fail."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for cell in code_cells(file):
            yield _run(cell, names, timeout_s)


def _run(cell: str, names: dict[str, Any], timeout_s: float) -> str:
    first, _, rest = cell.partition("\n")
    if first.startswith(WRITE):
        Path(first.removeprefix(WRITE)).write_text(rest + "\n")
        return f"Writing {first.removeprefix(WRITE)}\n"
    if cell.startswith("!"):
        done = subprocess.run(cell[1:], shell=True, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, (cell, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(cell, "cell", "exec"), names)
    return printed.getvalue()
