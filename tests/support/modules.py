"""azq.wasm and its JavaScript, run in Node or in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browsing import launched

from azq.bench.browser import open_tab, web

ROOT = Path(__file__).parents[2]
WEB = web()


def in_node(script: Path, given: Any = None) -> Any:
    """What a script prints as JSON, told where azq/web is and given JSON; skips where there is no Node."""
    if shutil.which("node") is None:
        pytest.skip("node (Debian: nodejs) is not installed")
    command = ["node", str(script), str(WEB)]
    done = subprocess.run(command, input=json.dumps(given), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def in_browser(script: Path, run: str, given: Any = None) -> Any:
    """What `run`, a JavaScript function of (core, the script's exports, given), returns in a page; skips where there is no browser."""
    with launched() as browser:
        page = open_tab(browser, {script.name: script})
        return page.evaluate(f"async (given) => ({run})(window.core, await import('/{script.name}'), given)", given)
