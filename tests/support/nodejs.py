"""Node, which runs what browsers run."""

from __future__ import annotations

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

WEB = Path(str(files("azq") / "web"))
SUPPORT = Path(__file__).parent
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


def node(script: str, *arguments: str) -> str:
    """What a module prints."""
    asked = ["node", "--no-warnings", "--input-type=module", "-", *arguments]
    done = subprocess.run(asked, input=script, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout
