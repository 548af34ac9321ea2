"""The games of docs/games/your-own.md do what the page says."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from reference.config import Settings
from reference.driver import Driver
from typer.testing import CliRunner

from azq import games
from azq.cli.app import app
from azq.errors import ConfigError
from azq.games.check import check
from azq.learner.step.loss import Symmetries
from azq.search.portable import PortableSearch

PAGE = (Path(__file__).parents[3] / "docs" / "games" / "your-own.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LISTINGS = {("nim.py" if "class Nim" in code else code.split("\n")[0].removeprefix("# ")): code for code in BLOCKS}
COMMANDS = re.findall(r"^(?:echo .* \| )?azq (.*?)(?: +#.*)?$", PAGE, re.MULTILINE)
SIZE = 4
NEAR = [
    frozenset(
        r * SIZE + c
        for r, c in ((row, column), (row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        if 0 <= r < SIZE and 0 <= c < SIZE
    )
    for row, column in (divmod(cell, SIZE) for cell in range(SIZE * SIZE))
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the page's files."""
    for name, source in LISTINGS.items():
        (tmp_path / name).write_text(source, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("azq.console.show.check_apart", lambda name, params, count, progress: check(games.load(name, **params), count))
    return tmp_path


@cache
def wins(free: frozenset[int]) -> bool:
    """Whether the player to move wins, by exhaustion."""
    return any(not wins(free - NEAR[cell]) for cell in free)


def good(free: frozenset[int]) -> set[int]:
    return {cell for cell in free if not wins(free - NEAR[cell])}


def free_of(row: np.ndarray) -> frozenset[int]:
    """The free cells of a packed observation: its second plane."""
    return frozenset(np.flatnonzero(np.unpackbits(row, bitorder="little")[SIZE**2 : 2 * SIZE**2]).tolist())


@pytest.mark.parametrize("name", ["nim.py:Nim", "lonely.py:Lonely", "showdown.py:Showdown"])
def test_the_pages_games_are_short_and_sound(name: str, folder: Path) -> None:
    assert len(LISTINGS[name.partition(":")[0]].splitlines()) <= 60
    report = check(games.load(name), games=20)
    assert report.sound, report.findings


def test_the_pages_checks_run(folder: Path) -> None:
    checks = [command for command in COMMANDS if command.startswith("games check") and "openspiel" not in command]
    assert len(checks) == 3
    for command in checks:
        answer = CliRunner().invoke(app, command.replace("--games 200", "--games 5").split())
        assert answer.exit_code == 0, answer.output


def test_impossible_parameters_are_refused_in_the_games_words(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"size 1 is not in 2\.\.9"):
        games.load("lonely.py:Lonely", size=1)


@pytest.mark.parametrize(("game", "told"), [("lonely.py:Lonely", True), ("nim.py:Nim", False), ("tic_tac_toe", False)])
def test_a_board_of_ones_own_is_told_of_the_network_for_boards(folder: Path, game: str, told: bool) -> None:
    ended = CliRunner().invoke(app, ["games", "check", game, "--games", "1"])
    assert (ended.exit_code, "--preset board" in ended.stdout) == (0, told)


@pytest.mark.parametrize(("pair", "meant"), [("cells, cells", True), ("np.argsort(cells), np.roll(cells, 1)", False)])
def test_a_symmetry_whose_cells_are_the_wrong_way_round_is_told_so(folder: Path, pair: str, meant: bool) -> None:
    source = (folder / "lonely.py").read_text().replace("(np.argsort(cells), cells)", f"({pair})")
    wrong = folder / "wrong.py"
    wrong.write_text(source)
    finding, *_ = check(games.load(f"{wrong}:Lonely"), games=5).findings
    assert (finding.rule, "the inverse of its cells would make it one" in finding.evidence) == ("symmetry", meant)


def test_symmetries_turn_planes_and_actions_the_same_way_for_the_learner(folder: Path) -> None:
    game = games.load("lonely.py:Lonely", size=SIZE)
    assert game.num_symmetries() == 8
    turning = Symmetries(game, torch.device("cpu"))
    for symmetry in range(8):
        here, image = game.new_initial_state(), game.new_initial_state()
        for action in (1, 7, 12):
            here.apply_action(action)
            image.apply_action(int(game.action_permutation(symmetry)[action]))
        chosen = torch.tensor([symmetry])
        planes = turning.planes(torch.tensor(here.observation_tensor())[None], chosen)[0]
        mask = turning.actions(torch.tensor([here.legal_actions_mask()], dtype=torch.float32), chosen)[0]
        np.testing.assert_array_equal(planes, image.observation_tensor())
        assert mask.tolist() == image.legal_actions_mask()


def test_recorded_targets_point_to_winning_moves(folder: Path) -> None:
    """Given exact values, the policy a record teaches prefers what wins, ply by ply; a uniform policy is the measure."""
    game = games.load("lonely.py:Lonely", size=SIZE)

    def exact(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.array([[1.0 if wins(free_of(row)) else -1.0] for row in packed], np.float16)
        return np.zeros((len(packed), SIZE**2), np.float16), values

    search = PortableSearch(game, Settings("gumbel", 24, random_opening_plies=4).core(), num_slots=48, seed=3)
    taught, uniform = [], []
    for record in Driver(search, packed_size=game.packed_size(), leaves_per_step=1, evaluate=exact).play(range(1, 49)):
        for row, policy in zip(game.replay(record.actions)[0], record.policies.astype(float), strict=True):
            free = free_of(row)
            if policy.any() and 0 < len(right := good(free)) < len(free):
                taught.append(policy[sorted(right)].sum())
                uniform.append(len(right) / len(free))
    assert len(taught) > 25
    assert np.mean(taught) > 0.9 > 0.6 > np.mean(uniform)
