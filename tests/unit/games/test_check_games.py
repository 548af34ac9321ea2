"""The checks that `azq games check` makes, on sound games and on broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference.blob import VARIANTS
from typer.testing import CliRunner

from azq import games
from azq.cli.app import app
from azq.findings import Finding
from azq.games.check import BUDGET_S, check

NIM = f"{Path(__file__).parents[2] / 'games' / 'nim.py'}:Nim"
SMALL: dict[str, dict[str, Any]] = {"gomoku": {"size": 9}, "hex": {"size": 5}, "othello": {"size": 6}, "backgammon": {"start": "bearoff"}}


@pytest.mark.parametrize(
    ("name", "params"), [*((name, SMALL.get(name, {})) for name in (*games.names(), NIM)), *(("blob", params) for params in VARIANTS[:5])]
)
def test_every_game_is_sound(name: str, params: dict[str, Any]) -> None:
    report = check(games.load(name, **params), games=4)
    assert report.sound, report.findings
    assert report.plies > 0
    assert report.playouts_per_s > 0


PEEKS = '''
class Peek:
    """One card each; the higher one wins; the tensor shows the other's card."""

    def __init__(self): self.cards, self.done = [], False
    def num_players(self): return 2
    def num_distinct_actions(self): return 1
    def is_chance_node(self): return len(self.cards) < 2
    def chance_outcomes(self): return [(card, 1 / (3 - len(self.cards))) for card in range(3) if card not in self.cards]
    def current_player(self): return 0
    def legal_actions(self): return [0]
    def apply_action(self, action):
        if len(self.cards) < 2: self.cards.append(action)
        else: self.done = True
    def is_terminal(self): return self.done
    def returns(self): return [1, -1] if self.cards[0] > self.cards[1] else [-1, 1]
    def observation_tensor(self, player): return [int(c in self.cards) for c in range(3)]
    def information_state_string(self, player): return str(self.cards[player])
    def resample_from_infostate(self, player, rng):
        other = Peek()
        rest = [card for card in range(3) if card != self.cards[player]]
        hidden = rest[int(rng() * 2)]
        other.cards = [self.cards[0], hidden] if player == 0 else [hidden, self.cards[1]]
        return other
    def __str__(self): return str(self.cards)
'''


def test_an_observation_that_changes_with_hidden_cards_is_found(tmp_path: Path) -> None:
    file = tmp_path / "peek.py"
    file.write_text(PEEKS, "utf-8")
    report = check(games.load(f"{file}:Peek"), games=20)
    assert {finding.rule for finding in report.findings} >= {"observation"}
    assert "changes with what is hidden" in next(f.evidence for f in report.findings if f.rule == "observation")


def test_the_command_reports_and_fails_on_a_breach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.console.show.check_apart", lambda name, params, count, progress: check(games.load(name, **params), count))
    runner = CliRunner()
    sound = runner.invoke(app, ["games", "check", NIM, "--games", "3", "--param", "heap=5", "--json"])
    assert sound.exit_code == 0
    report = json.loads(sound.stdout)
    assert (report["sound"], report["games"]) == (True, 3)
    file = tmp_path / "peek.py"
    file.write_text(PEEKS, "utf-8")
    broken = runner.invoke(app, ["games", "check", f"{file}:Peek", "--games", "20"])
    assert broken.exit_code == 2
    assert "fail observation" in broken.stdout


MISBEHAVING = Path(__file__).parents[2] / "games" / "misbehaving.py"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Sound", []),
        ("DrawnAtStart", ["replay: the recorded actions lead to another observation after 0 plies"]),
        ("Over", ["start: every game is over before any player moves"]),
        ("Endless", ["max_game_length: no end after the 50 plies declared"]),
        ("NeverDeclared", ["end: no end after 300 plies"]),
        ("SymmetryOfLooks", ["symmetry: symmetry 1 keeps what is seen and what is legal, and not the result"]),
        ("ForgetfulClone", ["clone: a line of clones ends with"]),
        ("SharedList", ["clone: playing on a clone changed the original"]),
    ],
)
def test_what_is_broken_is_named_and_its_speed_is_not_measured(name: str, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.games.check.MAX_PLIES", 300)
    heard: list[Finding] = []
    report = check(games.load(f"{MISBEHAVING}:{name}"), games=3, on_finding=heard.append)
    assert [f"{finding.rule}: {finding.evidence}"[: len(text)] for finding, text in zip(report.findings[:1], told, strict=True)] == told
    assert (tuple(heard), report.playouts_per_s > 0) == (report.findings, not told)


def test_no_game_begins_after_the_budget() -> None:
    moments = iter([0.0, 1.0, BUDGET_S])
    assert check(games.load(f"{MISBEHAVING}:Sound"), games=50, clock=lambda: next(moments)).games == 2


def test_a_long_game_is_checked_in_time_that_grows_with_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.games.check.playouts_per_s", lambda game: 1.0)
    calls = []
    for plies in (1000, 4000):
        game = games.load(f"{MISBEHAVING}:Long", plies=plies)
        kind = type(game.new_initial_state()._inner)  # type: ignore[attr-defined]
        assert check(game, games=1).sound
        calls.append(kind.calls)
    assert calls[1] < 4.5 * calls[0]
