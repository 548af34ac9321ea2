"""A recorded game as people look at it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from fastapi.testclient import TestClient
from page_site import RUN, Site
from replay_games import play_game

from azq import games
from azq.config import RunConfig, RunSections, dump_run
from azq.status.viewer import summary, view


def client_of(site: Site) -> TestClient:
    return TestClient(site.app, base_url="http://127.0.0.1")


@pytest.mark.parametrize("name", games.names())
def test_a_view_replays_the_game_as_the_rules_do(name: str) -> None:
    game = games.load(name)
    event = play_game(game, 3, searched_from=1)
    seen = view(name, game, event)
    state = game.new_initial_state()
    roots = np.frombuffer(event.record.root_values, "<f4").reshape(len(seen.plies), -1)
    for ply, root in zip(seen.plies, roots, strict=True):
        assert (ply.position, ply.player, ply.text) == (str(state), state.current_player(), state.action_to_string(ply.action))
        assert (ply.values is None) == (ply.simulations == 0)
        if ply.values is not None:
            assert len(ply.values) == game.num_players()
            assert ply.values[ply.player] == pytest.approx(float(root[0]))
            assert len(ply.values) == 1 or ply.values[(ply.player + 1) % len(ply.values)] == pytest.approx(
                float(root[1]) if len(root) > 1 else -float(root[0])
            )
            assert {target.action for target in ply.targets} <= set(state.legal_actions())
            assert [target.share for target in ply.targets] == sorted((target.share for target in ply.targets), reverse=True)
        state.apply_action(ply.action)
    assert seen.plies[0].targets == []
    assert (seen.final_position, state.is_terminal(), seen.returns) == (str(state), True, list(state.returns()))


def test_without_rules_actions_are_numbers_and_a_note_says_why() -> None:
    event = play_game(games.load("connect_four"), 3)
    seen = view("mine", None, event, "no such game here")
    assert seen.note == "no such game here"
    assert [ply.text for ply in seen.plies] == [str(ply.action) for ply in seen.plies]
    assert all(0 < len(ply.targets) <= 7 and ply.position == "" for ply in seen.plies)


def test_a_summary_tells_which_weights_searched() -> None:
    event = play_game(games.load("tic_tac_toe"), 3, searched_from=2, weight_version=7)
    assert (summary(event).weight_versions, summary(event).plies) == ((7, 7), len(event.record.actions) // 2)
    blind = play_game(games.load("tic_tac_toe"), 3, searched_from=99)
    assert summary(blind).weight_versions == (0, 0)


def test_games_over_rest_page_by_page(tmp_path: Path) -> None:
    site = Site(tmp_path)
    planted = site.plant_games(range(1, 8))
    client = client_of(site)
    first = client.get(f"/v1/runs/{RUN}/games?limit=4")
    assert [game["uid"] for game in first.json()] == [7, 6, 5, 4]
    rest = client.get(first.links["next"]["url"])
    assert ([game["uid"] for game in rest.json()], "link" in rest.headers) == ([3, 2, 1], False)
    shown = client.get(f"/v1/runs/{RUN}/games/5").json()
    assert [ply["action"] for ply in shown["plies"]] == np.frombuffer(planted[5].record.actions, "<u2").tolist()
    assert shown["returns"] == list(planted[5].returns)
    assert client.get(f"/v1/runs/{RUN}/games/99").status_code == 404
    assert client.get(f"/v1/runs/{RUN}/games?cursor=x").status_code == 422


def test_what_games_look_like_over_rest(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_games(range(1, 8))
    seen = client_of(site).get(f"/v1/runs/{RUN}/samples?games=5").json()["all"]
    assert (seen["games"], sum(seen["wins"]) + seen["shared"], seen["symmetry"]["symmetries"]) == (5, pytest.approx(1.0), 2)
    assert list(client_of(site).get(f"/v1/runs/{RUN}/samples?by=source").json()) == ["server"]
    assert client_of(site).get(f"/v1/runs/{RUN}/samples?by=host").status_code == 422


def test_a_host_without_the_games_says_where_they_are(tmp_path: Path) -> None:
    for path in ("games", "games/1", "samples", "learning"):
        answer = client_of(Site(tmp_path)).get(f"/v1/runs/{RUN}/{path}")
        assert (answer.status_code, "learner's host" in answer.json()["detail"]) == (404, True)


def test_a_game_in_a_python_file_is_shown_without_running_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_games(range(1, 3))
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    sections = msgspec.json.encode(dump_run(RunSections(run=RunConfig(game=f"{trap}:Trap"))))
    site.ledger.update_run(msgspec.structs.replace(site.ledger.run(RUN).record, sections=sections))
    shown = client_of(site).get(f"/v1/runs/{RUN}/games/2").json()
    assert "Python file" in shown["note"]
    assert shown["plies"][0]["position"] == ""
    assert not (tmp_path / "ran").exists()


def test_a_game_that_todays_rules_refuse_is_shown_by_numbers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_games(range(1, 3))
    sections = msgspec.json.encode(dump_run(RunSections(run=RunConfig(game="tic_tac_toe"))))
    site.ledger.update_run(msgspec.structs.replace(site.ledger.run(RUN).record, sections=sections))
    shown = client_of(site).get(f"/v1/runs/{RUN}/games/2").json()
    assert "positions are not shown: game 2" in shown["note"]
    assert [ply["text"] for ply in shown["plies"]] == [str(ply["action"]) for ply in shown["plies"]]


def test_a_log_of_another_schema_is_a_named_problem(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.plant_games(range(1, 3))
    (path,) = (tmp_path / RUN / "segments").glob("*.seg")
    data = bytearray(path.read_bytes())
    data[8] = 99
    path.write_bytes(data)
    answer = client_of(site).get(f"/v1/runs/{RUN}/games")
    assert (answer.status_code, "schema 99" in answer.json()["detail"]) == (502, True)


def test_the_page_is_served_with_a_policy_that_trusts_only_its_own_origin(tmp_path: Path) -> None:
    client = client_of(Site(tmp_path))
    for path in ("/", "/page/app.js", "/favicon.ico"):
        answer = client.get(path)
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get("/page/../daemon/main.py").status_code == 404
    assert client.get("/page/nothing.js").status_code == 404
