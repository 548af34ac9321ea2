"""The figures of games against a reading of each that takes its time."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from replay_games import play_game

from azq import games
from azq.errors import ConfigError, NotFound
from azq.samples.played import SHARED, read_games
from azq.samples.stats import stats
from azq.status.viewer import view
from azq.wire.messages import BROWSER_PREFIX


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
