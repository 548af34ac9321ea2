"""What a game prints disturbs no answer of a command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from azq.cli.app import app

MISBEHAVING = Path(__file__).parents[2] / "games" / "misbehaving.py"


def test_an_answer_stands_alone_on_standard_output() -> None:
    players = ["--first", "random", "--second", "random", "--games", "2"]
    ended = CliRunner().invoke(app, ["match", "--game", f"{MISBEHAVING}:Prints", *players, "--json"], catch_exceptions=False)
    assert json.loads(ended.stdout)["games"] == 2
    assert "move " in ended.stderr


def noisy_pieces(*_: Any) -> Iterator[str]:
    print("noise")
    yield "answer\n"


def noisy(*given: Any) -> int:
    print("noise")
    sink = next(one for one in reversed(given) if hasattr(one, "write"))
    sink.write("answer\n")
    return 0


@pytest.mark.parametrize(
    ("command", "patched"),
    [
        (["move"], {"azq.console.move.move": noisy, "azq.console.play.game_named": lambda *_: "tic_tac_toe"}),
        (["gtp"], {"azq.console.gtp.serve": noisy, "azq.console.play.game_named": lambda *_: "othello"}),
        (["games", "export", "r"], {"azq.console.recorded.games_of": lambda *_: ("", ""), "azq.notation.writing.export": noisy_pieces}),
        (["up", "--json"], {"azq.console.up.up": lambda asked, **_: noisy(asked.output)}),
    ],
)
def test_and_so_do_lines_for_machines(command: list[str], patched: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for place, double in patched.items():
        monkeypatch.setattr(place, double)
    ended = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (ended.stdout, ended.stderr) == ("answer\n", "noise\n")
