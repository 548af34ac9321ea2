"""Pages and what they load, which is named by its content."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from azq.process.site import FOREVER, Assets, Guarded

POLICY = "content-security-policy"
PAGE = """<head><link rel="manifest" href="../azq.webmanifest"><link rel="stylesheet" href="../look.css">
<script type="module" src="play.js"></script></head><a href="../play/#x">again</a><a href="#/">top</a>"""


@pytest.fixture
def web(tmp_path: Path) -> Path:
    (tmp_path / "play").mkdir()
    files = {"play/index.html": PAGE, "play/play.js": 'import { h } from "../dom.js";\n', "dom.js": 'import { b } from "./play/play.js";\n'}
    for name, text in (files | {"look.css": "a {}", "azq.webmanifest": "{}"}).items():
        (tmp_path / name).write_text(text)
    return tmp_path


def client_of(web: Path) -> TestClient:
    return TestClient(Guarded(Starlette(routes=Assets({"web": web}).routes({"/": "./web/play/"}))))


def assets(page: str) -> str:
    """The folder that a page names."""
    (name,) = set(re.findall(r"assets-\w+", page))
    return str(name)


def test_what_a_page_loads_is_kept_for_good_and_the_page_is_not(web: Path) -> None:
    client = client_of(web)
    page = client.get("/")
    links = re.findall(r'(?:href|src)="(.+?)"', page.text)
    root = f"../../{assets(page.text)}/web"
    preloaded = [f"{root}/play/play.js", f"{root}/dom.js"]
    assert links == ["../azq.webmanifest", f"{root}/play/play.js", *preloaded, "../play/#x", "#/"]
    assert "<style>a {}</style>" in page.text
    assert f"style-src 'self' 'sha256-{base64.b64encode(hashlib.sha256(b'a {}').digest()).decode()}'" in page.headers[POLICY]
    for link in preloaded:
        answer = client.get(urljoin("http://testserver/web/play/", link))
        assert (answer.status_code, answer.headers["cache-control"]) == (200, FOREVER)
    assert page.headers["cache-control"] == "no-cache"


def test_another_content_has_another_name_and_the_one_before_is_answered_and_not_kept(web: Path) -> None:
    client = client_of(web)
    page = client.get("/web/play/")
    script = f"/{assets(page.text)}/web/dom.js"
    packed = client.get(script, headers={"Accept-Encoding": "gzip"})
    assert {client.get(script).headers["cache-control"], packed.headers["cache-control"]} == {FOREVER}
    same = {"If-None-Match": page.headers["etag"]}
    kept = client.get("/web/play/", headers=same)
    assert (kept.status_code, kept.headers[POLICY]) == (304, page.headers[POLICY]), "a browser takes the newest"
    (web / "dom.js").write_text("changed")
    after = client.get("/web/play/", headers=same)
    assert (after.status_code, assets(after.text) != assets(page.text)) == (200, True)
    assert (client.get(script).text, client.get(script).headers["cache-control"]) == ("changed", "no-cache")
