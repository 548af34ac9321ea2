"""Every page works below a path prefix: no link, import, redirect or request of one is absolute."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from below_prefix import PREFIX, Answer, Prefixed, walk
from page_site import Site
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from azq.parts.volunteers.pages import make_site

ROOT = Path(__file__).parents[3]
OF_DAEMON = ("/", "/play", "/docs", "/web/play", "/favicon.ico")
OF_GATEWAY = ("/", "/play", "/progress", "/favicon.ico", "/web/contribute")


def walked(app: ASGIApp, starts: tuple[str, ...]) -> set[str]:
    client = TestClient(Prefixed(app), base_url="http://127.0.0.1", follow_redirects=False)

    def ask(url: str) -> Answer:
        answer = client.get(url)
        return Answer(answer.status_code, answer.headers.get("content-type", ""), answer.headers.get("location", ""), answer.text)

    return walk(ask, f"http://127.0.0.1{PREFIX}", starts)


def test_everything_that_a_daemons_pages_link_to_lies_below_the_prefix(tmp_path: Path) -> None:
    found = walked(Site(tmp_path).app, OF_DAEMON)
    assert {"/page/", "/page/run.js", "/web/play/", "/web/play/thinker.js", "/web/look.css", "/web/azq.wasm", "/openapi.json"} <= found


def test_everything_that_a_gateways_pages_link_to_lies_below_the_prefix() -> None:
    gateway: Any = SimpleNamespace(talk=None)
    found = walked(make_site(gateway, gateway, SimpleNamespace(figures=None, playable=None, game=None)), OF_GATEWAY)  # type: ignore[arg-type]
    assert {"/web/contribute/", "/web/contribute/crew.js", "/web/progress/", "/web/play/", "/web/address.js"} <= found


def test_scripts_ask_for_azqs_own_paths_through_the_functions_that_know_the_prefix() -> None:
    """`call` and its like are given paths as the interface names them, and `at` makes addresses of them."""
    literal = re.compile(r"""(?<!\bat\()(?<!\bcall\()(?<!\bcallPage\()(?<!\bcallBytes\()["'`]/(?:web|page|v1|models|docs|openapi)\b""")
    files = [*(ROOT / "daemon" / "page").glob("*.*"), *(file for file in (ROOT / "azq" / "web").rglob("*.*") if "vendor" not in file.parts)]
    found = [
        (file.name, line) for file in files if file.suffix in (".js", ".html", ".css") for line in file.read_text("utf-8").splitlines()
    ]
    absolute = [(name, line) for name, line in found if literal.search(line) and not line.startswith(("//", "/**"))]
    assert [name for name, line in absolute if "export const path = (run" not in line] == []


def test_the_schema_says_that_the_interface_lies_beside_it(tmp_path: Path) -> None:
    client = TestClient(Site(tmp_path).app, base_url="http://127.0.0.1")
    assert client.get("/openapi.json").json()["servers"] == [{"url": "./"}]
