"""The shipped networks as pages of files: all that a browser asks for is there, and nothing of other pages."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from azq import pretrained
from azq.console import demo
from azq.errors import StateConflict


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    demo._write_pages(folder)
    return folder


def test_each_game_has_a_board_and_rules(site: Path) -> None:
    entries = json.loads((site / "games.json").read_text())
    rules = (site / "web" / "rules.js").read_text()
    assert [entry["game"] for entry in entries] == list(pretrained.names())
    measured = {entry["game"]: entry["measured"] for entry in entries}
    assert (measured["connect_four"]["share"], measured["blob"]) == (0.96, None)
    assert all(entry["position"] and f"{entry['game']}: {{ title" in rules.replace('"', "") for entry in entries)


def test_pages_of_daemon_and_gateway_are_left_out(site: Path) -> None:
    assert (site / "index.html").exists()
    assert {path.name for path in (site / "web").iterdir() if path.is_dir()} == {"play", "gallery", "boards", "vendor"}


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
