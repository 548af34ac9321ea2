"""`/docs`: complete, plain, and like every page without another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

from fastapi.testclient import TestClient

from azq.bus.memory import MemoryBus
from azq.config import DaemonConfig
from azq.ledger import MemoryLedger
from daemon.api.app import create_app
from daemon.api.page import METHODS, render
from daemon.api.services import Services
from daemon.serve.health import Health

NAMESPACE = "http://www.w3.org/2000/svg"  # a name that browsers know and never fetch


def client() -> TestClient:
    bus = MemoryBus()
    services = Services(MemoryLedger(bus), bus, DaemonConfig(), Health(), Path("runs"), lambda: ["connect_four"])
    return TestClient(create_app(services), base_url="http://127.0.0.1")


class Page(HTMLParser):
    """What a browser would fetch and show: addresses in attributes, and the table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts = 0
        self.table: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        self.scripts += tag == "script"
        self._in_cell = tag in ("td", "code") and bool(self.table)
        if tag == "tr":
            self.table.append([])
        elif tag == "td":
            self.table[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.table[-1][-1] += data


def test_it_lists_every_operation_with_its_scope_and_what_it_does() -> None:
    site = client()
    table = Page(site.get("/docs").text).table[1:]
    paths = site.get("/openapi.json").json()["paths"]
    assert {(row[0], row[1]) for row in table} == {
        (method.upper(), path) for path, item in paths.items() for method in METHODS if method in item
    }
    assert all(row[2] in ("none", "worker", "read", "operate") and row[3] for row in table)
    assert ["POST", "/v1/runs", "operate"] in [row[:3] for row in table]


def test_no_page_asks_another_host_for_anything() -> None:
    site = client()
    page = Page(site.get("/docs").text)
    assert page.scripts == 0
    assert all(site.get(address).status_code == 200 for address in page.addresses)
    assert not any(re.match(r"/|\w+:", address) for address in page.addresses)
    assert site.get("/redoc").status_code == 404
    for path in [f"/page/{file.name}" for file in (files("daemon") / "page").iterdir()] + [
        f"/web/{place}{file.name}" for place in ("", "play/") for file in (files("azq") / "web" / place).iterdir() if file.is_file()
    ]:
        text = site.get(path).text.replace(NAMESPACE, "")
        assert not re.search(r"""["'(]\s*(https?:)?//""", text), path


def test_what_a_schema_says_is_shown_as_text() -> None:
    operation = {"description": "Reads <b>&</b>.\nAnd more.", "security": [{"token": ["read"]}]}
    schema = {"info": {"title": "t", "version": "<1>", "description": "d"}, "paths": {"/<x>": {"get": operation}}}
    assert Page(render(schema)).table[1:] == [["GET", "/<x>", "read", "Reads <b>&</b>."]]
