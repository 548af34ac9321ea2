"""azq.wasm and its JavaScript, run in Node or in a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from browsing import launched

ROOT = Path(__file__).parents[2]
WEB = ROOT / "azq" / "web"
TYPES = {".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}


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
    files = {**{f"/{file.name}": file for file in WEB.iterdir()}, f"/{script.name}": script}

    def serve(route: Any) -> None:
        file = files.get(route.request.url.removeprefix("https://azq.test"))
        if file is None:
            route.fulfill(body="<!doctype html>", content_type="text/html")
        else:
            route.fulfill(body=file.read_bytes(), content_type=TYPES[file.suffix])

    with launched() as browser:
        page = browser.new_page()
        page.route("**/*", serve)
        page.goto("https://azq.test/")
        return page.evaluate(
            f"""async (given) => {{
                const [{{ loadCore }}, script] = await Promise.all([import("/core.js"), import("/{script.name}")])
                return ({run})(await loadCore("/azq.wasm"), script, given)
            }}""",
            given,
        )
