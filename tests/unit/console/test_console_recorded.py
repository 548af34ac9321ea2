"""Recorded games out of a run's folder, into a new one, and searched again."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import numpy as np
import pytest
from replay_games import play_game

from azq import _core, games
from azq.config import RunSections, load
from azq.console import recorded
from azq.console.recorded import import_games
from azq.console.replay import replay_game, replay_text
from azq.console.samples import games_of
from azq.console.up import UpRequest
from azq.errors import ConfigError, NotFound, StateConflict, StoreError
from azq.games import Game
from azq.host.restore import holds_games
from azq.host.rundir import RunDir
from azq.notation.reading import ReadGame, read_games
from azq.notation.writing import export
from azq.replay.segments import LogEntry, OpenSegment, SegmentLog
from azq.search.search import exploring
from azq.wire.arrays import pack_record
from azq.wire.codec import encode
from azq.wire.messages import SampleEvent


@pytest.fixture
def asked(tmp_path: Path) -> UpRequest:
    return UpRequest("tic_tac_toe", "human", (f'home="{tmp_path}/runs"',))


def written(path: Path, count: int, *more: str) -> Path:
    game = games.load("tic_tac_toe")
    path.write_text("".join([*export("jsonl", "r", game, [play_game(game, uid) for uid in range(1, count + 1)]), *more]))
    return path


def told(line: str) -> None:
    """Nobody reads it."""


def test_a_run_begins_with_the_games_of_several_files(asked: UpRequest, tmp_path: Path) -> None:
    files = [written(tmp_path / "a.jsonl", 70), written(tmp_path / "b.jsonl", 5, '{"actions": [0, 0]}\n', '{"actions": [4]}\n')]
    done = import_games(asked, files, told)
    assert (done.run, done.games, done.left_out.total()) == ("human", 75, 2)
    assert done.named[0].startswith(f"{files[1]}, game 6: entry 2 at byte ")
    assert done.named[0].endswith("action 0 is not legal after 1 plies")
    folder = tmp_path / "runs" / "human"
    assert holds_games(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["human"]
    game, events = games_of(load(None, asked.overrides), "human", 100, None)
    found = list(events)
    assert [event.record.uid for event in found] == list(range(1, 76))
    assert {event.worker for event in found} == {"import"}
    assert done.positions == sum(len(event.record.actions) // 2 for event in found)
    assert game.name == "tic_tac_toe"


def test_what_was_given_up_is_played_on_where_somebody_does(asked: UpRequest, tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text("".join(json.dumps({"actions": actions}) + "\n" for actions in ([0, 3, 1, 4], [4])))
    with pytest.raises(ConfigError, match=r"no game of .*g.jsonl can be learnt from; the first: .*game 1: .*--finish PLAYER"):
        import_games(asked, [file], told)
    assert not (tmp_path / "runs" / "human").exists()
    done = import_games(asked, [file], told, finish="uct:50")
    assert (done.games, done.positions) == (2, 5)
    events = list(games_of(load(None, asked.overrides), "human", 9, None)[1])
    assert events[0].returns == (1.0, -1.0)  # who is to move wins at once
    assert all(len(event.record.actions) // 2 > 4 for event in events)


def test_a_game_that_was_played_on_to_another_result_is_left_out(asked: UpRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "g.jsonl", 3, json.dumps({"actions": [0, 3, 1, 4]}) + "\n")
    found = read_games

    def of_the_loser(form: str, game: Game, data: bytes) -> list[ReadGame]:
        return [ReadGame(each.number, each.actions, over=each.over, sign=-1) for each in found(form, game, data)]

    monkeypatch.setattr(recorded, "read_games", of_the_loser)
    done = import_games(asked, [file], told, finish="uct:50")
    assert (done.games, dict(done.left_out)) == (3, {recorded.OTHERWISE: 1})
    assert any("another result" in line for line in done.text())


HEX = "(;GM[11]SZ[5];B[a2];W[swap-pieces];B[c1];W[e5];B[c2];W[e4];B[c3];W[e3];B[c4];W[d4];B[c5])"


@pytest.mark.parametrize(("chosen", "params"), [((), {"size": 5, "swap": True}), (("run.params.size=7",), {"size": 7, "swap": True})])
def test_the_board_is_that_of_the_file_unless_it_is_set(tmp_path: Path, chosen: tuple[str, ...], params: dict[str, object]) -> None:
    file = tmp_path / "club.sgf"
    file.write_text(f"from the club {HEX}) (;SZ[9];B[a1])")
    asked = UpRequest("hex", "club", (f'home="{tmp_path}/runs"', *chosen))
    if chosen:
        with pytest.raises(ConfigError, match=r"the size 5, the run's 7"):
            import_games(asked, [file], told)
        return
    done = import_games(asked, [file], told)
    assert (done.games, done.positions) == (1, 11)
    assert dict(games_of(load(None, asked.overrides), "club", 1, None)[0].params) == params
    assert [line.strip().removeprefix(str(file)) for line in done.text()[2:-1]] == [
        ": byte 0: 'from the club' stands outside of any game",
        ": byte 103: one `)` too many",
        ", game 2: entry 0 at byte 109: its board has the size 9, the run's 5; another is --set run.params.size=N",
    ]


def test_bytes_of_no_encoding_are_refused_with_their_file(asked: UpRequest, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes("{}".encode("utf-16")[:-1])
    with pytest.raises(ConfigError, match=r"a\.jsonl: byte 4 is not UTF-16"):
        import_games(asked, [file], told)


def test_only_a_new_run_begins_with_games(asked: UpRequest, tmp_path: Path) -> None:
    file = written(tmp_path / "g.jsonl", 2)
    import_games(asked, [file], told)
    with pytest.raises(StateConflict, match="run 'human' exists"):
        import_games(asked, [file], told)
    with pytest.raises(NotFound, match=r"cannot read .*nowhere\.jsonl"):
        import_games(UpRequest("tic_tac_toe", "other", asked.overrides), [tmp_path / "nowhere.jsonl"], told)


def test_a_full_disk_leaves_nothing(asked: UpRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(OpenSegment, "append", full)
    with pytest.raises(StoreError, match="No space left"):
        import_games(asked, [written(tmp_path / "g.jsonl", 2)], told)
    assert list((tmp_path / "runs").iterdir()) == []


UID = 7


def run_with_a_game(home: Path, evaluator: str) -> None:
    """A run `first` of tic-tac-toe with one game, whose leaves were all evaluated alike."""
    sections = RunSections.model_validate(
        {"run": {"game": "tic_tac_toe", "seed": 3}, "search": {"num_simulations": 16}, "selfplay": {"evaluator": evaluator}}
    )
    RunDir(home, "first").create(sections)
    game = _core.load_game("tic_tac_toe", {})
    search = _core.Search(game, exploring(sections.search), num_slots=1, seed=3)
    search.start(0, UID, np.zeros(0, np.uint16))
    packed, slots = np.zeros((1, game.packed_size()), np.uint8), np.zeros(1, np.int32)
    while search.collect(packed, slots):
        search.apply(np.zeros((1, 9), np.float16), np.zeros((1, 1), np.float16), 4)
    record = search.record(0)
    log = SegmentLog(home / "first" / "segments", "tic_tac_toe")
    log.append([LogEntry(UID, 1, encode(SampleEvent(pack_record(record), tuple(map(float, record.returns)), "w:1", 1)))])
    log.close()


def test_a_game_is_told_ply_by_ply(tmp_path: Path) -> None:
    run_with_a_game(tmp_path, "uniform")
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, None)
    assert told["first_difference"] is None
    assert told["counts"]["equal"] == len(told["plies"])
    assert told["plies"][0]["recorded"]["action"] == told["plies"][0]["now"]["action"]
    assert sum(row["visits"] for row in told["plies"][0]["actions"]) == 16
    assert replay_text(told)[-1] == f"game {UID} by w:1: {len(told['plies'])} equal"


def test_one_ply_shows_all_its_actions(tmp_path: Path) -> None:
    run_with_a_game(tmp_path, "uniform")
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, 2)
    assert [each["ply"] for each in told["plies"]] == [2]
    assert len(replay_text(told)) == 2 + 2 + 7 + 1  # heads, an empty line and the sum


def test_long_work_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_with_a_game(tmp_path, "uniform")
    monkeypatch.setattr("azq.console.grading.TELL_EVERY_S", 0.0)
    lines: list[str] = []
    told = replay_game(load(None, [f'home="{tmp_path}"']), "first", UID, None, lines.append)
    last = told["plies"][-1]["ply"]
    assert lines[:2] == [f"ply 0 of {last}, {asked} positions evaluated" for asked in (1, 2)]


@pytest.mark.parametrize(
    ("run", "uid", "ply", "error", "said"),
    [
        ("second", UID, None, NotFound, "there are: first"),
        ("first", 99, None, NotFound, "no game 99"),
        ("first", UID, 40, ConfigError, "--ply 40 was not searched; of game 7 plies 0 to"),
        ("first", UID, None, NotFound, "weights of version 4 are not in"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path: Path, run: str, uid: int, ply: int | None, error: type[Exception], said: str) -> None:
    run_with_a_game(tmp_path, "stream")
    with pytest.raises(error, match=said):
        replay_game(load(None, [f'home="{tmp_path}"']), run, uid, ply)
