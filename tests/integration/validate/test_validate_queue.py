"""The command as people call it: through real brokers, daemon, learner and workers."""

import json
import subprocess

import pytest
from waiting import PATIENCE_S

from azq.process.start import AZQ, foreign_environment


def answered(*arguments):
    command = [*AZQ, "validate", "--json", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=foreign_environment(), timeout=500, check=False)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return json.loads(ended.stdout)


def test_the_queue_learns_what_one_process_learns():
    answer = answered("--game", "tic_tac_toe", "--iterations", "4")
    assert answer["passed"]
    assert answer["first_difference"] is None
    assert set(answer["runs"].values()) == {answer["hash"]} == {answer["versions"][-1]["hash"]}
    assert [(one["number"], one["step"], one["games"]) for one in answer["versions"]] == [(n + 1, 16 * n, 32 * n) for n in range(5)]
    assert answer["baseline"] == "agrees" or answer["baseline"].startswith("none of tic_tac_toe on this kind of machine")


@pytest.mark.slow
@pytest.mark.parametrize("hardship", [["--workers", "1"], ["--workers", "4", "--kill"], ["--stop", "--evaluator", "local"]], ids=" ".join)
def test_whatever_befalls_it(hardship):
    assert answered("--iterations", "4", *hardship)["passed"]


def test_an_unknown_game_is_one_line():
    command = [*AZQ, "validate", "--game", "poker"]
    ended = subprocess.run(command, capture_output=True, text=True, env=foreign_environment(), timeout=PATIENCE_S, check=False)
    assert (ended.returncode, len(ended.stderr.strip().splitlines())) == (2, 1)
