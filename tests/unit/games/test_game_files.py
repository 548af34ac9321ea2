"""No name of a game makes a process import, open or run what its host did not allow."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.errors import ConfigError, GameContractError
from azq.games import GameFiles
from azq.games.files import absolute
from azq.games.openspiel import check_openspiel

NIM_FILE = Path(__file__).parents[2] / "games" / "nim.py"
POPEN = f"{subprocess.__file__}:Popen"


def put(folder: Path, name: str = "nim.py", more: str = "") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(NIM_FILE.read_text("utf-8") + more, "utf-8")
    return f"{folder / name}:Nim"


def test_a_file_is_played_where_it_or_a_folder_above_it_is_allowed(tmp_path: Path) -> None:
    name = put(tmp_path / "games" / "more")
    for allowed in (tmp_path / "games" / "more" / "nim.py", tmp_path / "games"):
        assert GameFiles((tmp_path / "other", allowed)).load(name, {"heap": 7}).params == {"heap": 7}


@pytest.mark.parametrize("allowed", [(), ("other",), ("games/mor",), ("games/more/nim",)])
def test_nothing_else_is_opened(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    marker = tmp_path / "ran"
    name = put(tmp_path / "games" / "more", more=f"open({str(marker)!r}, 'w')\n")
    with pytest.raises(ConfigError, match=r"does not allow.*worker\.game_files"):
        GameFiles(tuple(tmp_path / place for place in allowed)).load(name, {})
    assert not marker.exists()


def test_links_and_dots_lead_out_of_no_folder(tmp_path: Path) -> None:
    allowed = tmp_path / "games"
    outside = put(tmp_path / "outside")
    put(allowed)
    (allowed / "link.py").symlink_to(tmp_path / "outside" / "nim.py")
    (allowed / "folder").symlink_to(tmp_path / "outside")
    (allowed / "loop.py").symlink_to(allowed / "loop.py")
    for path in ("link.py", "folder/nim.py", "../outside/nim.py", "loop.py", "\0.py"):
        with pytest.raises(ConfigError, match="does not allow"):
            GameFiles((allowed,)).load(f"{allowed}/{path}:Nim", {})
    (tmp_path / "alias").symlink_to(allowed)
    assert GameFiles((tmp_path / "alias",)).load(f"{allowed}/nim.py:Nim", {}).num_players() == 2
    assert GameFiles((Path(outside.rpartition(":")[0]),)).load(f"{allowed}/link.py:Nim", {}).num_players() == 2


def test_a_file_imports_what_lies_beside_it_which_takes_no_librarys_place(tmp_path: Path) -> None:
    more = "import colorsys, sticks_of_nim\nclass Nim(Nim):\n    def __init__(self): super().__init__(sticks_of_nim.HEAP)\n"
    name, before = put(tmp_path, more=more), list(sys.path)
    (tmp_path / "sticks_of_nim.py").write_text("HEAP = 9\n")
    (tmp_path / "colorsys.py").write_text("raise SystemExit\n")
    assert str(games.load(name).new_initial_state()).startswith("9 sticks")
    assert sys.path == before


def test_a_file_that_is_not_allowed_is_told_with_what_names_it(tmp_path: Path) -> None:
    name = put(tmp_path)
    for source, begins in (("", "game "), ("sent.toml", "sent.toml names game ")):
        with pytest.raises(ConfigError, match=f"^{begins}{re.escape(name)}, a Python file that this host does not allow"):
            GameFiles(()).path(name, source)


def test_a_file_has_one_absolute_name_and_other_games_keep_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = [absolute(name) for name in ("x/../nim.py:Nim", "hex", "openspiel:nim")]
    assert told == [f"{tmp_path.resolve()}/nim.py:Nim", "hex", "openspiel:nim"]


def test_a_game_that_declares_no_length_has_ten_thousand_plies(tmp_path: Path) -> None:
    without = put(tmp_path).rpartition(":")[0]
    Path(without).write_text(NIM_FILE.read_text("utf-8").replace("def max_game_length", "def unused"), "utf-8")
    assert games.load(f"{without}:Nim").max_game_length() == 10_000


@pytest.mark.parametrize("allowed", [(), (Path("/"),), (Path(subprocess.__file__),)])
def test_the_interpreters_own_files_are_never_games(tmp_path: Path, allowed: tuple[Path, ...]) -> None:
    marker = tmp_path / "ran"
    with pytest.raises(ConfigError):
        GameFiles(allowed).load(POPEN, {"args": f"touch {marker}", "shell": True})
    with pytest.raises(ConfigError, match="interpreter's own files"):
        games.load(POPEN, args=f"touch {marker}", shell=True)
    assert not marker.exists()


def test_packages_of_any_interpreter_are_never_games(tmp_path: Path) -> None:
    for folder in ("site-packages", "dist-packages"):
        with pytest.raises(ConfigError, match="interpreter's own files"):
            games.load(put(tmp_path / "lib" / folder))
    here = Path(sys.prefix) / f"never-{os.getpid()}.py"
    with pytest.raises(ConfigError, match="interpreter's own files"):
        games.load(f"{here}:Nim")


def test_a_class_that_is_no_game_is_not_called(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    name = put(tmp_path, more="from subprocess import Popen\n").replace(":Nim", ":Popen")
    with pytest.raises(GameContractError, match=r"no method num_players\(\)"):
        games.load(name, args=f"touch {marker}", shell=True)
    assert not marker.exists()


def test_a_position_that_lacks_a_method_is_not_called(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    source = (
        f"class Half:\n    def __init__(self):\n        open({str(marker)!r}, 'w')\n"
        "    num_players = num_distinct_actions = lambda self: 2\n"
    )
    (tmp_path / "half.py").write_text(source, "utf-8")
    with pytest.raises(GameContractError, match=r"no method current_player\(\)"):
        games.load(f"{tmp_path / 'half.py'}:Half")
    assert not marker.exists()


@pytest.mark.parametrize(
    "name", ["openspiel:efg_game(filename=/etc/hostname)", "openspiel:", "openspiel:Chess", "openspiel:../x", "openspiel:a b"]
)
def test_a_name_of_openspiel_is_a_bare_name(name: str) -> None:
    with pytest.raises(ConfigError, match=r"none of openspiel:NAME.*run\.params"):
        check_openspiel(name, {})


@pytest.mark.parametrize(
    "params", [{"text": "/dev/zero"}, {"text": "a\\b"}, {"text": ".."}, {"text": "~root"}, {"filename": "fifo"}, {"instances_file": ""}]
)
def test_openspiel_opens_no_file(params: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="open no files"):
        check_openspiel("openspiel:efg_game", params)
    with pytest.raises(ConfigError, match="open no files"):
        GameFiles((Path("/"),)).load("openspiel:efg_game", params)


#: they get names from the person who starts them; all others from data, and an import contract cannot tell `games.load` from `azq.games`
PERSONS: tuple[str, ...] = ("azq/cli/play.py", "azq/console/doctor.py", "azq/console/show.py", "azq/console/grading.py")
PERSONS += (
    "azq/parts/lab/bench/",
    "azq/parts/lab/drill/faults/",
    "azq/parts/lab/speedrun/exam.py",
    "azq/parts/lab/validate/",
    "azq/parts/lab/sweep/plan.py",
    "azq/games/__init__.py",
    "azq/host/game_files.py",
)


def trusts(file: Path) -> bool:
    """Whether a file of azq loads, or allows, whatever a name says."""
    nodes = list(ast.walk(ast.parse(file.read_text("utf-8"))))
    imported = {name.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "azq.games" for name in node.names}
    used = {ast.unparse(node) for node in nodes if isinstance(node, ast.Attribute)}
    return "load" in imported or bool({"games.load", "azq.games.load", "GameFiles.named"} & used)


def test_only_what_a_person_starts_trusts_a_name() -> None:
    """All others go through `GameFiles`: what they load is named by weights, a run's folder, a record or a daemon."""
    root = Path(__file__).parents[3]
    files = [file for package in ("azq", "workers", "daemon") for file in (root / package).rglob("*.py")]
    trusting = [str(file.relative_to(root)) for file in files if trusts(file)]
    assert [name for name in trusting if not name.startswith(PERSONS)] == []
    assert [name for name in PERSONS if not any(each.startswith(name) for each in trusting)] == []


@given(st.text())
def test_only_letters_digits_and_underscores_reach_openspiel(text: str) -> None:
    try:
        assert set(check_openspiel(f"openspiel:{text}", {"size": 3, "rule": "odd", "fast": True})) <= set(
            "abcdefghijklmnopqrstuvwxyz0123456789_"
        )
    except ConfigError:
        assert not text.replace("_", "a").isalnum() or text != text.lower() or not text.isascii()
