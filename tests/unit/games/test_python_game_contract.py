"""What a class in a Python file may add (scalars, symmetries, notation), and by which name each breach is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq import games
from azq.config import parse_params
from azq.errors import AzqError, ConfigError, GameContractError, IllegalActionError
from azq.games.check import check

NIM = (Path(__file__).parents[2] / "games" / "nim.py").read_text("utf-8")
SCALARS = """
    def scalars(self, player):
        return [self.left, -self.player]
"""
NOTATION = """
    def notation(self):
        return f"{self.left}:{self.player}"

    def state_from_notation(self, text):
        left, player = map(int, text.split(":"))
        if not 0 <= left <= self.heap:
            raise ValueError(f"{left} sticks; at most {self.heap}")
        other = Nim(self.heap)
        other.left, other.player = left, player
        return other
"""


def write(folder: Path, source: str) -> str:
    file = folder / "game.py"
    file.write_text(source, "utf-8")
    return f"{file}:Nim"


def test_scalars_travel_behind_the_bits(tmp_path: Path) -> None:
    game = games.load(write(tmp_path, NIM + SCALARS), heap=10)
    assert (game.observation_planes(), game.num_scalars(), game.packed_size()) == ((1, 1, 10), 2, 4)
    state = game.new_initial_state()
    state.apply_action(2)
    assert state.scalars().tolist() == [7, -1]
    assert state.packed_observation().tolist() == [0b1111111, 0, 7, 255]
    assert check(game, games=5).sound


def test_a_game_may_have_its_own_notation(tmp_path: Path) -> None:
    game = games.load(write(tmp_path, NIM + NOTATION))
    state = game.state_from_notation("7:1")
    assert (state.notation(), state.current_player(), state.history()) == ("7:1", 1, [])
    with pytest.raises(ConfigError, match="has no position '99:0': 99 sticks; at most 15"):
        game.state_from_notation("99:0")
    assert check(game, games=5).sound


@given(st.lists(st.integers(0, 2), max_size=5))
def test_without_notation_a_position_is_its_actions(actions: list[int]) -> None:
    file = Path(__file__).parents[2] / "games" / "nim.py"
    game = games.load(f"{file}:Nim")
    state = game.new_initial_state()
    for action in actions:
        state.apply_action(action)
    again = game.state_from_notation(state.notation())
    assert again.history() == actions
    assert str(again) == str(state)


@pytest.mark.parametrize(
    ("symmetries", "rule"),
    [
        ("return [([0, 1], range(15))]", "symmetry 0 does not permute its 3 actions"),
        ("return [([0, 1, 2], [0] * 15)]", "symmetry 0 does not permute its 15 cells"),
        ("return [3]", "symmetries are no pairs"),
    ],
)
def test_symmetries_that_are_no_permutations_are_refused(symmetries: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(GameContractError, match=rule):
        games.load(write(tmp_path, NIM + f"\n    def symmetries(self):\n        {symmetries}\n"))


HALVES = {
    "is_chance_node": ("chance_outcomes", "is_chance_node"),
    "information_state_string": ("resample_from_infostate", "information_state_string"),
    "notation": ("state_from_notation", "notation"),
}


@pytest.mark.parametrize("method", HALVES)
def test_half_of_a_pair_of_methods_is_refused(method: str, tmp_path: Path) -> None:
    """Secrets without a sampler would be searched by peeking, in silence."""
    missing, there = HALVES[method]
    with pytest.raises(GameContractError, match=rf"has {there}\(\) without {missing}\(\); write both or none"):
        games.load(write(tmp_path, NIM + f"\n    def {method}(self, *args):\n        return False\n"))


WRONG = {
    "legal_actions": {
        "return None": "legal_actions gave None, which is not a list of action numbers",
        "return []": "no legal action where player . is to move",
        "return [0.5]": r"legal_actions gave \[0.5\]",
        "return [0, 0]": "are not distinct numbers",
        "return [3]": "are not distinct numbers below num_distinct_actions",
    },
    "current_player": {"return None": "current_player gave None, which is not a player's number", "return 2": "current_player is 2"},
    "is_terminal": {"raise ValueError('x')": "is_terminal raised ValueError: x"},
    "apply_action": {
        "raise SystemExit(0)": "apply_action raised SystemExit: 0",
        "import sticks": r"raised ModuleNotFoundError: No module named 'sticks' \(import files beside this one at its top\)",
    },
    "returns": {
        "return None": "returns gave None, which is not a list of numbers",
        "return ['a', 'b']": "which is not a list of numbers",
        "return [float('nan')] * 2": r"leave \[-1, 1\]",
        "return [5.0, -5.0]": r"leave \[-1, 1\]; scale them",
        "return [1.0, 1.0]": "do not sum to 0",
    },
    "observation_tensor": {
        "return 'abc'": "observation_tensor gave 'abc', which is not an array of numbers",
        "return [0] * 3": r"has shape \(3,\), at the start it had \(15,\)",
        "return [2] * 15": "observation_tensor holds 2.0; write planes of 0 and 1, and counts into scalars",
    },
    "__str__": {"raise KeyError(1)": "__str__ raised KeyError"},
}


@pytest.mark.parametrize(("method", "code"), [(method, code) for method, codes in WRONG.items() for code in codes])
def test_every_breach_is_a_contract_error_by_name(method: str, code: str, tmp_path: Path) -> None:
    """Where it happens in the middle of a game: nothing but azq's own error comes out, which ends that game only."""
    lines = NIM.splitlines()
    at = next(number for number, line in enumerate(lines) if f"def {method}(" in line)
    lines.insert(at + 1, f"        if self.left < 6:\n            {code}")
    game = games.load(write(tmp_path, "\n".join(lines)))

    def play() -> None:
        state = game.new_initial_state()
        while not state.is_terminal():
            state.packed_observation()
            str(state)
            state.apply_action(state.legal_actions()[0])
        state.returns()

    with pytest.raises(GameContractError, match=WRONG[method][code]):
        play()
    if method != "__str__":  # a record of such a game does not replay, which whoever reads records knows how to refuse
        with pytest.raises(IllegalActionError, match=r"at ply \d+ of the replay"):
            game.replay(np.zeros(15, np.uint16))


def test_a_game_that_does_not_end_as_declared_ends_by_name_wherever_it_is_played(tmp_path: Path) -> None:
    endless = NIM.replace("return self.left == 0", "return False").replace("self.left -= action + 1", "pass")
    name = write(tmp_path, endless + "\n    def max_game_length(self):\n        return 50\n")
    state = games.load(name).new_initial_state()
    for _ in range(50):
        state = state.clone()
        state.apply_action(0)
    with pytest.raises(GameContractError, match=r"no end after the 50 plies that max_game_length\(\) allows"):
        state.apply_action(0)


def test_chance_does_not_act_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.games.adapted_state.MAX_PLIES", 3)
    always = (
        DICE.format(code="return [(0, 1.0)]")
        .replace("return self.rolled is None", "return True")
        .replace("self.rolled is not None", "False")
    )
    with pytest.raises(GameContractError, match="chance goes on and on after 3 plies"):
        games.load(write(tmp_path, always))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"swap": "off"}, "parameter swap is true or false, not 'off'"),
        ({"swap": 2}, "parameter swap is true or false, not 2"),
        ({"heap": "many"}, "parameter heap is a number, not 'many'"),
        ({"hep": 3}, "has no parameter hep; it takes heap, swap; did you mean heap?"),
    ],
)
def test_a_parameter_is_one_that_the_class_names_and_of_its_kind(given: dict[str, str], told: str, tmp_path: Path) -> None:
    name = write(tmp_path, NIM.replace("heap: int = 15", "heap: int = 15, swap: bool = True"))
    with pytest.raises(ConfigError, match=told):
        games.load(name, **given)
    assert [games.load(name, **parse_params([f"swap={swap}"])).params for swap in (False, True)] == [{"swap": False}, {"swap": True}]


def test_a_copy_or_a_new_position_that_raises_is_named(tmp_path: Path) -> None:
    game = games.load(write(tmp_path, NIM + "\n    def __deepcopy__(self, memo):\n        raise RuntimeError('no copies')\n"))
    with pytest.raises(GameContractError, match=r"copying the position raised RuntimeError: no copies; write clone\(self\)"):
        game.new_initial_state().clone()
    once = (
        NIM.replace(
            "        self.player = 0", "        self.player = 0\n        MADE.append(1)\n        if len(MADE) > 4: raise OSError('full')"
        )
        + "\nMADE = []\n"
    )
    game = games.load(write(tmp_path, once))
    with pytest.raises(GameContractError, match="a new position raised OSError: full"):
        [game.new_initial_state() for _ in range(6)]


def test_two_files_of_one_name_are_two_games(tmp_path: Path) -> None:
    """And so are those that they import from beside them."""
    for folder, sticks in (("a", 3), ("b", 7)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "sticks.py").write_text(f"HEAP = {sticks}\n")
        write(tmp_path / folder, NIM.replace("class Nim", "from sticks import HEAP\n\n\nclass Nim").replace("= 15", "= HEAP"))
    first, second = (games.load(f"{tmp_path / folder / 'game.py'}:Nim") for folder in "ab")
    assert [str(game.new_initial_state())[:8] for game in (first, second)] == ["3 sticks", "7 sticks"]


DICE = """
class Nim:
    def __init__(self): self.rolled = None
    def num_players(self): return 2
    def num_distinct_actions(self): return 1
    def is_chance_node(self): return self.rolled is None
    def chance_outcomes(self): {code}
    def current_player(self): return 0
    def legal_actions(self): return [0]
    def apply_action(self, action): self.rolled = action
    def is_terminal(self): return self.rolled is not None
    def returns(self): return [1, -1]
    def observation_tensor(self, player): return [1]
"""


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("return [(0, 0.5), (1, 0.4)]", "probabilities of chance_outcomes sum to 0.9"),
        ("return [(0, 1.5), (1, -0.5)]", "one is negative"),
        ("return [(0, 0.5), (0, 0.5)]", "not distinct"),
        ("return []", r"chance_outcomes gave \[\], which is not a list of \(outcome, probability\)"),
    ],
)
def test_chance_that_is_none_is_refused(code: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(AzqError, match=rule):
        games.load(write(tmp_path, DICE.format(code=code))).new_initial_state().legal_actions()
