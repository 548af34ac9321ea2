"""Figures of recorded games, and whether two groups of them are of one kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from honest_tabs import TinyNetworks, games_of, order_of
from numpy.typing import NDArray
from replay_games import play_game

from azq import games
from azq.errors import ConfigError, NotFound
from azq.samples.diff import AGREES, DIFFERS, TOO_FEW, diff, outcome_gap
from azq.samples.played import ROW, SHARED, read_games
from azq.samples.stats import stats
from azq.status.viewer import view
from azq.wire.messages import BROWSER_PREFIX, SampleEvent


@pytest.mark.parametrize("name", games.names())
def test_figures_are_those_that_the_viewer_shows(name: str) -> None:
    game = games.load(name)
    events = [play_game(game, uid, searched_from=1, weight_version=uid) for uid in (3, 4)]
    rows = read_games(game, events).rows
    for event, row in zip(events, rows, strict=True):
        seen = view(name, game, event)
        searched = [ply for ply in seen.plies if ply.simulations]
        own = [ply.values[ply.player] for ply in searched if ply.values is not None]
        assert row["length"] == len(seen.plies)
        assert row["simulations"] == 32
        assert row["value"] == pytest.approx(np.mean(own), abs=1e-4)
        assert row["error"] == pytest.approx(
            np.mean([(value - event.returns[ply.player]) ** 2 for value, ply in zip(own, searched, strict=True)]), abs=1e-3
        )
        best = [seat for seat, result in enumerate(event.returns) if result == max(event.returns)]
        assert row["winner"] == (best[0] if len(best) == 1 else SHARED)
        policies = np.frombuffer(event.record.policies, "<f2").astype(np.float64).reshape(len(seen.plies), -1)
        logs = np.log(policies, where=policies > 0, out=np.zeros_like(policies))
        assert row["entropy"] == pytest.approx(-(policies * logs).sum() / len(searched), abs=1e-3)
        assert row["bins"][0].sum() == len(searched)
        assert row["version"] == event.record.uid
    assert rows["age"].tolist() == [0, 0]


def test_groups_and_figures_tell_sources_workers_and_versions_apart() -> None:
    game = games.load("tic_tac_toe")
    tab = f"{BROWSER_PREFIX}ada"
    events = [play_game(game, uid, weight_version=1 + uid % 2) for uid in range(1, 41)]
    events = [msgspec.structs.replace(event, worker=tab) if event.record.uid % 4 == 0 else event for event in events]
    events += [msgspec.structs.replace(events[0], record=msgspec.structs.replace(events[0].record, uid=99))]
    played = read_games(game, events)
    assert {name: len(rows) for name, rows in played.groups("source").items()} == {"browser": 10, "server": 31}
    assert set(played.groups("worker")) == {tab, "selfplay@test:1"}
    assert set(played.groups("version")) == {"1", "2"}
    assert list(played.groups(None)) == ["all"]
    assert (played.of_worker(tab).sum(), played.of_worker("browser:bob").sum()) == (10, 0)
    with pytest.raises(ConfigError, match="source, worker, version, not by 'host'"):
        played.groups("host")
    found = stats(game, played.rows)
    assert found.games == 41
    assert found.plies == sum(len(event.record.actions) // 2 for event in events)
    assert sum(found.wins) + found.shared == pytest.approx(1.0)
    assert found.duplicates >= 1 / 41
    assert found.versions == (1, 2)
    assert sum(each.plies for each in found.calibration) == found.plies
    assert all(-1 <= each.value <= 1 and -1 <= each.result <= 1 for each in found.calibration)


def test_games_without_a_search_have_no_figures_of_one() -> None:
    game = games.load("tic_tac_toe")
    found = stats(game, read_games(game, [play_game(game, 1, searched_from=9)]).rows)
    assert (found.entropy, found.value, found.simulations, found.squared_error, found.calibration) == (None, None, None, 0.0, [])
    with pytest.raises(NotFound, match="no finished games"):
        read_games(game, [])


@pytest.mark.parametrize(("name", "symmetries"), [("connect_four", 2), ("tic_tac_toe", 8), ("othello", 4), ("backgammon", 0)])
def test_first_moves_are_held_against_the_symmetries_that_keep_the_start(name: str, symmetries: int) -> None:
    game = games.load(name)
    found = stats(game, read_games(game, [play_game(game, uid) for uid in range(1, 201)]).rows).symmetry
    if not symmetries:
        assert found is None
        return
    assert found is not None
    assert found.symmetries == symmetries
    assert found.p_value > 0.001


def test_a_network_that_prefers_one_side_shows() -> None:
    game = games.load("connect_four")
    rows = read_games(game, [play_game(game, uid) for uid in range(1, 201)]).rows
    rows["first"] = np.where(np.arange(200) % 3 > 0, 0, 6)
    lopsided = stats(game, rows).symmetry
    assert lopsided is not None
    assert lopsided.p_value < 0.01
    assert lopsided.imbalance == pytest.approx(1 / 6, abs=0.01)


GAMES = 400
HONEST: dict[str, Any] = {"algorithm": "puct", "num_simulations": 32, "temperature_plies": 4}


@cache
def made(first_uid: int, games: int = GAMES, version: int = 3, **otherwise: Any) -> NDArray[Any]:
    """Figures of games of tic-tac-toe by one network, searched as ordered or otherwise."""
    honest = order_of("tic_tac_toe", **HONEST)
    order = order_of("tic_tac_toe", **(HONEST | otherwise))
    evaluate, events = TinyNetworks(honest.game), []
    for start in range(first_uid, first_uid + games, 100):
        uids = range(start, min(start + 100, first_uid + games))
        for each in games_of(honest, evaluate, uids, version=version, config=order.config(order.search.num_simulations)):
            returns = honest.game.replay(np.frombuffer(each.record.actions, "<u2"))[3]
            events.append(SampleEvent(each.record, tuple(returns.tolist()), "selfplay@test:1", 1))
    return read_games(honest.game, events).rows


def different(first: NDArray[Any], second: NDArray[Any], *, match_versions: bool = True) -> set[str]:
    return {each.figure for each in diff(first, second, match_versions=match_versions).figures if each.verdict == DIFFERS}


def test_games_of_one_kind_agree() -> None:
    found = diff(made(1), made(10_001), match_versions=True)
    assert found.verdict == AGREES
    assert found.games == (GAMES, GAMES)
    assert found.left_out == (0, 0)
    assert all(each.distance <= each.noticed_from < 0.25 for each in found.figures)


@pytest.mark.parametrize(
    ("otherwise", "seen"),
    [
        ({"num_simulations": 16}, "simulations"),
        ({"num_simulations": 28}, "simulations"),
        ({"temperature_plies": 0}, "opening"),
        ({"algorithm": "gumbel"}, "entropy"),
    ],
)
def test_a_tab_that_searches_otherwise_is_found(otherwise: dict[str, Any], seen: str) -> None:
    assert seen in different(made(1), made(10_001, **otherwise))


def test_a_tab_that_stays_with_an_old_network_is_found_where_it_says_so_and_where_not() -> None:
    old = made(10_001, version=2)
    found = diff(made(1), old, match_versions=True)
    assert (found.verdict, found.games, found.left_out) == (TOO_FEW, (0, 0), (GAMES, GAMES))
    assert different(made(1), old, match_versions=False)
    pretended = old.copy()
    pretended["version"] = 3
    assert different(made(1), pretended)


def test_another_mix_of_versions_is_no_difference() -> None:
    first = np.concatenate([made(1), made(20_001, 100, version=2)])
    second = np.concatenate([made(10_001, 100), made(30_001, version=2)])
    assert different(first, second, match_versions=False)
    assert not different(first, second)


def test_the_ends_of_a_run_have_the_short_games_of_a_slow_source() -> None:
    first, second = (np.zeros(600, ROW) for _ in range(2))
    for rows, last in ((first, 7), (second, 8)):
        rows["version"] = 1 + np.arange(600) % last
        rows["length"] = 20
    second["length"][(second["version"] == 1) | (second["version"] == 7)] = 9
    found = diff(first, second, match_versions=True)
    assert found.verdict == AGREES
    assert found.left_out == (171, 225)
    assert "length" in different(first, second, match_versions=False)


def test_few_games_tell_little_and_say_so() -> None:
    found = diff(made(1)[:12], made(10_001)[:12], match_versions=True)
    assert found.verdict == TOO_FEW
    assert max(each.noticed_from for each in found.figures) > 0.25


def test_alarms_are_as_rare_as_they_should_be() -> None:
    rng = np.random.default_rng(5)
    alarms = 0
    for seed in range(20):
        rows = np.zeros(240, ROW)
        for name in ("length", "entropy", "simulations", "value", "error"):
            rows[name] = rng.normal(10, 2, 240)
        rows["winner"], rows["opening"] = rng.integers(-1, 2, 240), rng.integers(0, 30, 240)
        alarms += diff(rows[:120], rows[120:], match_versions=False, seed=seed).verdict == DIFFERS
    assert alarms <= 2


def rows_of(results: dict[int, list[float]]) -> NDArray[Any]:
    """Games by version, of which only the results of seat 0 are known."""
    rows = np.zeros(sum(map(len, results.values())), ROW)
    rows["version"] = np.repeat(list(results), [len(each) for each in results.values()])
    rows["result"] = np.concatenate(list(results.values()))
    return rows


def test_outcomes_are_compared_version_by_version() -> None:
    mine = rows_of({1: [1, 1, -1, -1], 2: [1, 1, 1, -1] * 3, 9: [1.0]})
    others = rows_of({1: [1, -1] * 8, 2: [1, -1] * 80, 8: [-1.0]})
    found = outcome_gap(mine, others)
    assert found is not None
    assert found.games == (16, 176)
    assert found.gap == pytest.approx(0.5 * 12 / 16)
    spread = float(np.concatenate([mine[:-1], others[:-1]])["result"].var())
    half = 1.959964 * (spread * ((4 / 16) ** 2 * (1 / 4 + 1 / 16) + (12 / 16) ** 2 * (1 / 12 + 1 / 160))) ** 0.5
    assert (found.low, found.high) == (pytest.approx(found.gap - half), pytest.approx(found.gap + half))
    assert outcome_gap(mine, rows_of({7: [1.0]})) is None


def test_who_keeps_back_what_seat_0_wins_is_seen_and_who_brings_all_is_not() -> None:
    rng = np.random.default_rng(0)
    others, honest, all_of_it = (rows_of({3: list(rng.choice([1.0, -1.0, 0.0], 2_000))}) for _ in range(3))
    kept_back = all_of_it[(all_of_it["result"] < 1) | (rng.random(2_000) < 0.5)]
    fair, unfair = outcome_gap(honest, others), outcome_gap(kept_back, others)
    assert fair is not None
    assert unfair is not None
    assert fair.low < 0 < fair.high
    assert unfair.high < 0
