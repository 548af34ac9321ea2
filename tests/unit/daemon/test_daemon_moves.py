"""`POST /v1/runs/{run}/moves` and `GET .../levels`: what networks play, how strongly, and what is refused."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import heartbeat
from pydantic import SecretStr
from rest_site import RestSite
from waiting import PATIENCE_S, until

from azq import games
from azq.arena.match import draw_outcome
from azq.bus.wanted import wanted_runs
from azq.config import ArenaConfig, RunConfig, RunSections, TokenConfig, dump_run
from azq.errors import EvaluatorFailure
from azq.ledger.types import RunState
from azq.search.evaluator import UniformEvaluator
from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import Heartbeat, MatchResult, MatchSpec, ModelEvent, RunRecord, WeightEvent
from daemon.api.moves import DEADLINE_S, unanswerable

RUN = "r"
WIN = [0, 4, 1, 5]  # tic-tac-toe: x takes square 2 and wins


class Desk(RestSite):
    """A REST interface over doubles, with a run of one game."""

    def __init__(self, game: str = "tic_tac_toe", home: Path = Path("runs"), **options: Any) -> None:
        self.make: Any = lambda record, sections, game: UniformEvaluator(game.num_distinct_actions(), game.value_size())
        super().__init__(home, doubles={"evaluator_of": lambda *given: self.make(*given)}, **options)
        sections = RunSections(run=RunConfig(game=game), arena=ArenaConfig(num_simulations=64))
        self.ledger.create_run(RunRecord(RUN, msgspec.json.encode(dump_run(sections)), {}, "", 1))

    def publish(self, *versions: int) -> None:
        for version in versions:
            self.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, version, "a" * 64, "file:x", 1, 1)))

    def rate(self, version: int, share: float) -> None:
        wins = round(40 * share)
        spec = MatchSpec(f"weights:{version}", "uct:100", 40, 64, 4, 0)
        self.bus.publish(keys.results(RUN), encode(MatchResult(spec, spec.first, spec.second, wins, 0, 40 - wins, 1, share=share)))

    def ask(self, *positions: Any, **more: Any) -> Any:
        return self.http.post(f"/v1/runs/{RUN}/moves", json={"positions": list(positions), "num_simulations": 64, **more})


@pytest.fixture
def desk() -> Desk:
    made = Desk()
    made.publish(1, 2, 3)
    return made


def test_each_position_gets_its_move_with_what_the_search_saw(desk: Desk) -> None:
    notation = games.load("tic_tac_toe").new_initial_state().notation()
    answer = desk.ask({"actions": WIN}, {"position": notation, "actions": WIN}, {"actions": []}).json()
    assert (answer["weight_version"], answer["num_simulations"], answer["temperature"], answer["elo"]) == (3, 64, 0.0, None)
    first, second, third = answer["moves"]
    assert (first["action"], first["text"], first["player"], first["value"], first["proven"]) == (2, "x(0,2)", 0, 1.0, True)
    assert second["action"] == 2
    assert all(move["candidates"][0]["action"] == move["action"] for move in (first, second, third))
    assert {move["action"] for move in first["candidates"]} == {2, 3, 6, 7, 8}
    assert sum(move["prior"] for move in third["candidates"]) == pytest.approx(1, abs=1e-3)
    assert sum(move["visits"] for move in third["candidates"]) == 64
    line = third["principal_variation"]
    assert line[0] == third["action"]
    assert len(line) == len(third["principal_variation_texts"]) > 1


@pytest.mark.parametrize(
    ("positions", "more", "status", "named"),
    [
        ([], {}, 422, "at least 1"),
        ([{}] * 65, {}, 422, "at most 64"),
        ([{"actions": [0, 0]}], {}, 422, "positions.0"),
        ([{}, {"actions": [0, 3, 1, 4, 2]}], {}, 422, "positions.1: the game is over"),
        ([{"actions": [99]}], {}, 422, "99"),
        ([{"position": "nonsense"}], {}, 422, "positions.0"),
        ([{"cards": 3}], {}, 422, "cards"),
        ([{}], {"weights": 7}, 404, "no weights 7; the newest are 3"),
        ([{}], {"weights": "newest"}, 422, "weights"),
        ([{}], {"weights": "2,7"}, 404, "no weights 7; the newest are 3"),
        ([{}], {"weights": "2,"}, 422, "weights"),
        ([{}], {"num_simulations": 3_201}, 422, "above 3200"),
        ([{}], {"temperature": -1}, 422, "temperature"),
        ([{}], {"level": 900}, 422, "`level` settles"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(positions: Any, more: Any, status: int, named: str) -> None:
    desk = Desk()
    desk.publish(1, 2, 3)
    answer = desk.ask(*positions, **more)
    assert answer.status_code == status
    assert named in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]


def test_a_run_without_weights_or_of_another_name_is_named(desk: Desk) -> None:
    assert "published no weights yet" in Desk().ask({}).json()["detail"]
    assert desk.http.post("/v1/runs/absent/moves", json={"positions": [{}]}).status_code == 404
    assert "no levels" in desk.http.post(f"/v1/runs/{RUN}/moves", json={"positions": [{}], "level": 5}).json()["detail"]


def test_the_rules_of_a_python_file_are_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    desk = Desk(f"{trap}:Trap")
    desk.publish(1)
    answer = desk.ask({})
    assert (answer.status_code, "runs no code of games" in answer.json()["detail"]) == (422, True)
    assert not (tmp_path / "ran").exists()


def test_a_level_settles_weights_simulations_and_temperature(desk: Desk) -> None:
    for version, share in ((1, 0.3), (2, 0.25), (3, 0.9)):
        desk.rate(version, share)
    levels = desk.http.get(f"/v1/runs/{RUN}/levels").json()
    assert [level["elo"] for level in levels] == sorted(level["elo"] for level in levels)
    assert [level["weight_version"] for level in levels if level["measured"]] == [1, 3]  # the second lost strength
    weakest, strongest = levels[0], levels[-1]
    for wanted in (weakest, strongest, levels[4]):
        answer = desk.http.post(f"/v1/runs/{RUN}/moves", json={"positions": [{"actions": WIN}], "level": wanted["elo"]}).json()
        same = ("weight_version", "num_simulations", "temperature", "elo")
        assert [answer[name] for name in same] == [wanted[name] for name in same]
    assert desk.ask({}, weights="best").json()["weight_version"] == 3


def test_several_versions_answer_together(desk: Desk) -> None:
    assert desk.ask({"actions": WIN}, weights="1,2").json()["weight_version"] == 2


def test_a_temperature_draws_moves_and_a_seed_draws_the_same(desk: Desk) -> None:
    played = {desk.ask({}, temperature=5.0).json()["moves"][0]["action"] for _ in range(12)}
    assert len(played) > 2
    assert len({desk.ask({}, temperature=5.0, seed=4).json()["moves"][0]["action"] for _ in range(4)}) == 1


@pytest.mark.parametrize("game", games.names())
def test_every_game_is_answered_and_hidden_hands_change_nothing(game: str) -> None:
    desk = Desk(game)
    desk.publish(1)
    state, luck, actions = games.load(game).new_initial_state(), random.Random(4), []
    while state.is_chance_node():
        actions.append(draw_outcome(state, luck))
        state.apply_action(actions[-1])
    (move,) = desk.ask({"actions": actions}, seed=1).json()["moves"]
    assert move["action"] in state.legal_actions()
    assert move["text"] == state.action_to_string(move["action"])
    if games.load(game).is_hidden():
        other = state.resample_from_infostate(state.current_player(), 9)
        (again,) = desk.ask({"position": other.notation()}, seed=1).json()["moves"]
        assert {one["action"] for one in again["candidates"]} == {one["action"] for one in move["candidates"]}


def test_searches_beyond_the_queue_are_refused_with_a_time_to_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.api.moves.SEARCHES", 1)
    monkeypatch.setattr("daemon.api.moves.QUEUE", 1)
    desk = Desk()
    desk.publish(1)
    begun, gate = threading.Semaphore(0), threading.Event()

    def slow(record: Any, sections: Any, game: Any) -> UniformEvaluator:
        begun.release()
        gate.wait(PATIENCE_S)
        return UniformEvaluator(9)

    desk.make = slow
    with desk.http, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(desk.ask, {}) for _ in range(2)]
        begun.acquire(timeout=PATIENCE_S)
        until(lambda: desk.app.state.turns._room._value == 0, "both are in")
        refused = desk.ask({})
        gate.set()
        assert [one.result().status_code for one in first] == [200, 200]
    assert (refused.status_code, "1 searches wait" in refused.json()["detail"]) == (429, True)
    assert int(refused.headers["retry-after"]) > 0


class Silent(UniformEvaluator):
    """Never answers."""

    def result(self, handle: int, *, timeout_s: float) -> Any:
        return None


def test_evaluators_that_fail_are_told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(UniformEvaluator):
        def result(self, handle: int, *, timeout_s: float) -> Any:
            raise EvaluatorFailure("inference worker: no weights")

    desk.make = lambda *_: Failing(9)
    assert (desk.ask({}).status_code, desk.ask({}).json()["type"]) == (502, "urn:azq:error:EvaluatorFailure")
    desk.make = lambda *_: Silent(9)
    monkeypatch.setattr("daemon.api.moves.DEADLINE_S", -DEADLINE_S)
    silent = desk.ask({})
    assert (silent.status_code, "the inference workers are busy" in silent.json()["detail"]) == (503, True)


@pytest.mark.parametrize("state", list(RunState))
@pytest.mark.parametrize("door", ["moves", "levels"])
def test_a_run_that_is_over_is_noted_for_the_inference_workers(desk: Desk, state: RunState, door: str) -> None:
    desk.ledger.set_run_state(RUN, state)
    assert (desk.ask({}) if door == "moves" else desk.http.get(f"/v1/runs/{RUN}/levels")).status_code == 200
    assert wanted_runs(desk.bus) == (frozenset() if state is RunState.RUNNING else {RUN})


def beat(role: str, host: str, **unserved: str) -> Heartbeat:
    return heartbeat(role, f"{role}@{host}:1", host, unserved=unserved)


@pytest.mark.parametrize(
    ("beats", "told"),
    [
        ([], "no inference worker is alive to search for run r; start one: `azq inference`"),
        (
            [beat("selfplay", "north"), beat("learner", "north")],
            "no inference worker is alive to search for run r; start one: `azq inference`",
        ),
        ([beat("inference", "north"), beat("inference", "south", r="damaged")], ""),
        ([beat("inference", "north", other="damaged")], ""),
        ([beat("inference", "north", r="no open_spiel")], "no inference worker serves run r; north: no open_spiel"),
    ],
)
def test_who_cannot_answer_is_named(beats: list[Heartbeat], told: str) -> None:
    assert unanswerable(beats, "r") == told


def test_without_an_inference_worker_nobody_waits_for_the_deadline(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.make = lambda *_: Silent(9)
    monkeypatch.setattr("daemon.api.moves.SILENT_S", 0.0)
    answer = desk.ask({})
    assert (answer.status_code, "no inference worker is alive" in answer.json()["detail"]) == (503, True)


def test_readers_may_ask_and_leave_no_line_in_the_audit() -> None:
    tokens = {
        "reader": TokenConfig(token=SecretStr("token-reads")),
        "joins": TokenConfig(token=SecretStr("token-joins"), scope="worker"),
    }
    desk = Desk(token=SecretStr("token-operates"), tokens=tokens)
    desk.publish(1)
    codes = {}
    for name in ("reads", "joins", "operates"):
        desk.http.headers["authorization"] = f"Bearer token-{name}"
        codes[name] = desk.ask({}).status_code
    assert codes == {"reads": 200, "joins": 403, "operates": 200}
    desk.app.state.auditor.close()
    assert desk.bus.length(keys.AUDIT) == 0


def test_a_daemon_that_stops_ends_its_searches(desk: Desk) -> None:
    def stop(*_: Any) -> UniformEvaluator:
        desk.app.state.turns.closing = True
        return Silent(9)

    desk.make = stop
    answer = desk.ask({})
    assert (answer.status_code, "stopping" in answer.json()["detail"]) == (503, True)


def test_networks_for_browsers_are_listed_with_levels_of_those_alone_and_handed_out(tmp_path: Path) -> None:
    desk = Desk(home=tmp_path)
    assert desk.http.get(f"/v1/runs/{RUN}/networks").json()["networks"] == []
    sha256, uri = open_store("file", directory=tmp_path / RUN / "weights").put(b"a network")
    for stream, version in ((keys.onnx(RUN), 1), (keys.onnx(RUN), 3), (keys.networks(RUN), 3)):  # the first two by an older azq
        event = ModelEvent(version, sha256, uri, 9, b"", b"", b"", 0.0)
        desk.bus.publish(stream, encode(event))
    for version, share in ((1, 0.2), (2, 0.6), (3, 0.9)):
        desk.rate(version, share)
    told = desk.http.get(f"/v1/runs/{RUN}/networks").json()
    assert (told["run"], told["game"], told["search"]["gumbel_scale"], told["search"]["temperature"]) == (RUN, "tic_tac_toe", 0.0, 0.0)
    assert [one["version"] for one in told["networks"]] == [1, 3]
    assert {level["weight_version"] for level in told["levels"]} == {1, 3}
    assert desk.http.get(f"/v1/runs/{RUN}/networks/{sha256}").content == b"a network"
    assert desk.http.get(f"/v1/runs/{RUN}/networks/{'0' * 64}").status_code == 404
    assert desk.http.get(f"/v1/runs/{RUN}/networks/weights").status_code == 422
