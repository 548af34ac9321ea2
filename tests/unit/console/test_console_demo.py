"""The shipped networks as pages of files: all that a browser asks for is there, and nothing of other pages."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from azq import pretrained
from azq.console import demo
from azq.errors import StateConflict


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    demo.write_pages(folder, "https://play.test/")
    return folder


def assets(site: Path) -> Path:
    """The folder that is named by its content."""
    (folder,) = site.glob("assets-*/web")
    return folder


def test_each_game_has_a_board_and_rules(site: Path) -> None:
    entries = json.loads((site / "games.json").read_text())
    rules = (assets(site) / "rules.js").read_text()
    assert [entry["game"] for entry in entries] == list(pretrained.names())
    measured = {entry["game"]: entry["measured"] for entry in entries}
    assert (measured["connect_four"]["share"], measured["blob"]) == (0.96, None)
    elo = {entry["game"]: [level["elo"] for level in entry["levels"]] for entry in entries}
    assert (len(elo["tic_tac_toe"]), elo["tic_tac_toe"][0], elo["2048"]) == (10, 0, [])
    assert all(entry["position"] and f"{entry['game']}: {{ title" in rules.replace('"', "") for entry in entries)


def test_pages_of_daemon_and_gateway_are_left_out(site: Path) -> None:
    assert (site / "index.html").exists()
    assert {path.name for path in assets(site).iterdir() if path.is_dir()} == {*demo.PAGES}


def test_a_network_is_named_by_its_hash_and_has_ten_levels(site: Path) -> None:
    about = json.loads(demo._write_network(site, "tic_tac_toe").read_text())
    (network,) = about["networks"]
    data = (site / "site" / f"{network['sha256']}.onnx").read_bytes()
    assert (hashlib.sha256(data).hexdigest(), len(data)) == (network["sha256"], network["size"])
    assert len(about["levels"]) == 10
    assert sorted(about["levels"], key=lambda level: level["elo"]) == about["levels"]
    assert {level["weight_version"] for level in about["levels"]} == {network["version"]}


def test_a_folder_with_other_files_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(StateConflict, match="is not empty"):
        demo.build(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("place", [".", *(f"play/{game}" for game in pretrained.names())])
def test_every_link_of_a_page_leads_to_a_file(site: Path, place: str) -> None:
    page = site / place / "index.html"
    text = page.read_text("utf-8")
    links = re.findall(r'(?:href|src)="([^"]+)"', text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert any(link.endswith("/boards/grid.js") for link in links), "modules of modules are loaded at once"
    (image,) = re.findall(r'property="og:image" content="https://play.test/([^"]+)"', text)
    assert (site / image).is_file()
    assert '<meta property="og:title" content="Play ' in text


@pytest.mark.parametrize("brotli", [None, SimpleNamespace(compress=lambda data: b"br" + data)])
def test_files_lie_packed_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brotli: SimpleNamespace | None) -> None:
    monkeypatch.setattr(demo, "_write_network", lambda folder, game: None)
    monkeypatch.setitem(sys.modules, "brotli", brotli)  # None: it is not installed
    demo.build(tmp_path)
    core = assets(tmp_path) / "azq.wasm"
    assert gzip.decompress(core.with_name("azq.wasm.gz").read_bytes()) == core.read_bytes()
    packed = core.with_name("azq.wasm.br")
    assert packed.read_bytes() == b"br" + core.read_bytes() if brotli else not packed.exists()
