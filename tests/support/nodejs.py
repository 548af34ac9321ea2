"""Node, which runs what browsers run."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WEB = Path(str(importlib.resources.files("azq") / "web"))
SUPPORT = Path(__file__).parent
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node (Debian: nodejs) is not installed")


def node(script: str) -> str:
    """What a module prints."""
    return _run("--no-warnings", "--input-type=module", "-", given=script)


def in_node(script: Path, given: Any = None) -> Any:
    """What a script prints as JSON, told where azq/web is and given JSON; skips where there is no Node."""
    if shutil.which("node") is None:
        pytest.skip("node (Debian: nodejs) is not installed")
    return json.loads(_run(str(script), str(WEB), given=json.dumps(given)))


def _run(*arguments: str, given: str) -> str:
    done = subprocess.run(["node", *arguments], input=given, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout
