"""Runs that browsers make games for: two tabs play, the learner learns, and what was learned shows; what they make is what servers make."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from acceptance.test_whole_loop import losing_moves, move_of
from browsing import launched
from commands import SETTINGS as QUICK
from commands import azq
from waiting import until

from azq.host.fronts import free_port
from azq.local import Local
from azq.process.proc import tree_cpu_s
from azq.replay.readers import SegmentReader
from azq.status.summary import RunStatus
from azq.wire.messages import BROWSER_PREFIX

RUN = "tabs"
MINUTES = float(os.environ.get("AZQ_TEST_MINUTES", "10"))  # of the curves
BY_CHANCE = 0.25  # of two distributions of games of one kind, at most
SETTINGS = (
    "run.tag=browser",  # no worker of the fleet has it: tabs alone
    'volunteers.kinds=["selfplay"]',
    "learner.batch_size=128",
    "learner.min_window=1000",
    "learner.samples_per_insert=8",
    "selfplay.random_opening_plies=2",
    "learner.publish_every_s=5",
)
BESIDE_A_SERVER = (
    "search.reuse_subtree=false",  # tabs keep no subtree from ply to ply, so servers keep none here
    "worker.concurrency=1",  # one process that asks the stream: a server about as quick as two tabs
    'worker.evaluator="stream"',
    "selfplay.games_in_flight=8",  # who has many unfinished ones at the end lacks long ones
    "learner.min_window=1024",
    "learner.samples_per_insert=32",  # holds a server, which is quicker than tabs, to the learner's pace
    "learner.limiter_slack=4096",
)


@pytest.mark.slow
def test_tic_tac_toe_is_learned_from_two_tabs(tmp_path: Path) -> None:
    last = learned_with_two_tabs(tmp_path, "steps=800", *SETTINGS)
    assert last.ledger.balanced
    assert last.ledger.inserted == last.ledger.finished > 500
    assert last.weight_version > 2
    workers = {event.worker for _, event in SegmentReader(tmp_path / RUN / "segments").newest(10_000)}
    assert len(workers) == 2
    assert all(worker.startswith(BROWSER_PREFIX) for worker in workers)
    # 44 with a network that knows nothing; as a rule none is left, on a busy machine, where versions are few, two or three are.
    assert len(losing_moves(move_of(tmp_path, RUN))) < 15


@pytest.mark.slow
def test_tabs_and_a_server_make_games_of_one_kind(tmp_path: Path) -> None:
    last = learned_with_two_tabs(tmp_path, "games=3500", *BESIDE_A_SERVER)
    assert last.ledger.balanced
    done = azq(tmp_path, "samples", "diff", RUN, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["groups"] == ["browser", "server"]
    assert min(found["diff"]["games"]) > 150
    # One run in a hundred differs by chance, and then by little; half the simulations lie at a distance of 1 (tests/unit/samples).
    assert not [each for each in found["diff"]["figures"] if each["verdict"] == "differs" and each["distance"] > BY_CHANCE], done.stdout


@pytest.mark.release
@pytest.mark.timeout(120 * MINUTES + 900)
def test_backgammon_is_learned_from_two_tabs_alone_beside_what_a_server_learns(tmp_path: Path) -> None:
    """AZQ_TEST_MINUTES of each, on the cores of this machine; with `-s` it prints the curves of docs/research.md."""
    curves = {who: curve_of(tmp_path / who, tabs) for who, tabs in {"two tabs": 2, "server": 0}.items()}
    for who, points in curves.items():
        print(f"\n{who}: seconds, CPU-seconds, games, millipoints lost a move")
        print(*("  {seconds:6.0f} {cpu_s:6.0f} {games:7} {millipoints:7.2f}".format(**point) for point in points), sep="\n")
        assert points[-1]["millipoints"] < points[0]["millipoints"]


def curve_of(home: Path, tabs: int) -> list[dict[str, float]]:
    """What some versions of a run of backgammon lose a move at 64 simulations, played for by so many tabs, or by a server."""
    port, seen, before_s = free_port(), dict[int, dict[str, float]](), tree_cpu_s(os.getpid())
    settings = ["daemon.port=0", "arena.every_s=0", f"learner.min_window={round(3277 * MINUTES)}"]
    settings += SETTINGS[:2] if tabs else ["worker.concurrency=2"]
    options = ["--until", f"minutes={MINUTES:g}", *(["--volunteers", "--port", str(port)] if tabs else [])]
    with launched() as browser, Local("backgammon", run=RUN, settings=settings, options=options, folder=home) as run:
        for _ in range(tabs):
            open_tab(browser, port)
        for status in run.statuses():
            spent = {"seconds": status.active_s, "cpu_s": tree_cpu_s(os.getpid()) - before_s, "games": status.ledger.finished}
            seen.setdefault(status.weight_version, spent)
    versions = sorted(seen)[1:]
    for version in versions[:: max(1, len(versions) // 8)]:  # about eight
        graded = azq(home, "grade", "--run", RUN, "--player", f"weights:{version}", "--num-simulations", "64", "--json")
        assert graded.returncode == 0, graded.stderr
        seen[version]["millipoints"] = json.loads(graded.stdout)["mean_loss"]
    return [point for point in seen.values() if "millipoints" in point]


def learned_with_two_tabs(home: Path, until_goal: str, *settings: str) -> RunStatus:
    """How a run of tic-tac-toe ended that two tabs play for, none of whose games was refused."""
    port, sets = free_port(), [*QUICK, *settings]
    options = ["--volunteers", "--port", str(port), "--until", until_goal]
    with launched() as browser, Local("tic_tac_toe", run=RUN, settings=sets, options=options, folder=home) as run:
        pages = [open_tab(browser, port) for _ in range(2)]
        last = run.wait(minutes=7.5)
        assert all(page.evaluate("document.querySelector('[data-tile=\"refused\"] b').textContent") == "0" for page in pages)
    assert last.state == "finished"
    return last


def open_tab(browser: Any, port: int) -> Any:
    """A device of its own that plays."""
    page = browser.new_context().new_page()

    def here() -> bool:
        try:
            page.goto(f"http://127.0.0.1:{port}/")
        except Exception:
            return False
        return True

    until(here, "the gateway")
    page.locator("#go").click()
    return page
