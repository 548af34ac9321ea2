"""The whole system as a newcomer runs it: `azq up` in a subprocess, real brokers, real Celery, real learner."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from commands import QUICK, SETTINGS, azq, azq_here
from recovering import trains

from azq import Local, games
from azq.config import load as load_config
from azq.console.move import open_player
from azq.errors import ExitCode


@cache
def best_value(actions: tuple[int, ...]) -> float:
    """Exact value of a tic-tac-toe position for the player to move, by exhaustion."""
    state = games.load("tic_tac_toe").new_initial_state()
    for action in actions:
        state.apply_action(action)
    if state.is_terminal():
        return state.returns()[len(actions) % 2]
    return max(-best_value((*actions, action)) for action in state.legal_actions())


def losing_moves(agent: Callable[[list[list[int]]], list[int]]) -> list[tuple[int, ...]]:
    """Every move of the agent, in its games against every play of the other side, that loses what was not lost; the plies up to it.

    Lines that end lost are no measure: one wrong move near the root makes dozens of them.
    """
    wrong: list[tuple[int, ...]] = []
    rules = games.load("tic_tac_toe")
    for seat in (0, 1):
        frontier: list[tuple[int, ...]] = [()]
        while frontier:
            grown: list[tuple[int, ...]] = []
            to_move: list[tuple[int, ...]] = []
            for actions in frontier:
                state = rules.new_initial_state()
                for action in actions:
                    state.apply_action(action)
                if state.is_terminal():
                    continue
                if state.current_player() == seat:
                    to_move.append(actions)
                else:
                    grown += [(*actions, action) for action in state.legal_actions()]
            answers = agent([list(actions) for actions in to_move]) if to_move else []
            moved = [(*actions, action) for actions, action in zip(to_move, answers, strict=True)]
            wrong += [actions for actions in moved if best_value(actions) > 0 and best_value(actions[:-1]) >= 0]
            frontier = grown + moved
    return wrong


def move_of(home: Path, run: str, num_simulations: int = 32) -> Callable[[list[list[int]]], list[int]]:
    """The run's newest weights as `azq move` plays them, in this process: a process for each ply would mostly import torch."""
    config = load_config(overrides=[f'home="{home}"', "inference.threads=1"])
    player = open_player(config, game="tic_tac_toe", run=run, weights="latest", num_simulations=num_simulations)
    return lambda histories: [answer["action"] for answer in player.moves(histories)]


@pytest.mark.slow
def test_two_thousand_five_hundred_steps_of_tic_tac_toe_hardly_lose(tmp_path: Path) -> None:
    # Counted in steps, since what a minute teaches depends on what else the machine does. With 32 simulations the network itself has to see
    # four plies ahead, and now and then one move of hundreds is wrong; with the 400 of `azq play` one was in 1 of some 40 runs.
    done = azq(tmp_path, "up", "--game", "tic_tac_toe", "--run", "ttt", "--until", "steps=2500", "--json", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["state"] == "finished"
    agent = move_of(tmp_path, "ttt")
    told = azq(tmp_path, "move", "--run", "ttt", "--num-simulations", "32", stdin='{"actions": [4]}')
    assert json.loads(told.stdout)["action"] == agent([[4]])[0], told.stderr
    assert len(losing_moves(agent)) < 5, "untrained it makes 44"
    assert len(losing_moves(move_of(tmp_path, "ttt", 400))) < 3, "untrained it makes 12"


def test_a_run_resumes_where_it_was_interrupted(tmp_path: Path) -> None:
    with Local("tic_tac_toe", run="drill", settings=[*SETTINGS, "learner.publish_every_s=2"], folder=tmp_path) as run:
        trains(run, 20)
    # The run is at rest now; a second start takes up where the first one stopped.
    done = azq(tmp_path, "up", "--run", "drill", "--until", "games=50", "--json", *QUICK)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])["ledger"]
    assert counts["balanced"]
    assert counts["inserted"] == counts["finished"]
    assert counts["abandoned"] == 0
    assert {part.name for part in (tmp_path / "drill").iterdir()} >= {
        "run.toml",
        "segments",
        "checkpoints",
        "weights",
        "logs",
        "tensorboard",
    }
    # Without its folder the run cannot go on, and does not pretend to.
    shutil.rmtree(tmp_path / "drill")
    refused = azq_here(tmp_path, "up", "--run", "drill", *QUICK)
    assert refused.returncode == int(ExitCode.CONFLICT)
    assert "the broker remembers run 'drill'" in refused.stderr
    assert "choose another --run" in refused.stderr
    assert not (tmp_path / "drill").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["up", "--game", "no_such_game"], 2, "no_such_game"),
        (["up", "--set", "search.simulations=5"], 2, "search.simulations"),
        (["up", "--until", "hours=3"], 2, "hours=3"),
        (["up", "--run", "Not A Name"], 2, "Not A Name"),
        (["status", "--set", 'broker.control_url="redis://127.0.0.1:1/0"'], 3, "127.0.0.1:1"),
        (["ledger"], 2, "azq up"),
        (["move", "--game", "connect_four", "--weights", "gone.safetensors"], 9, "gone.safetensors"),
    ],
)
def test_bad_input_gets_one_line_and_its_exit_code(tmp_path: Path, arguments: list[str], code: int, named: str) -> None:
    answer = azq_here(tmp_path, *arguments)
    assert answer.returncode == code, answer.stderr
    assert named in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1
