"""Engines in processes: crash, silence and nonsense are one error by name, and nothing of them stays behind."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

from azq import games
from azq.arena.engines import process as process_module
from azq.arena.engines.gtp import GtpPlayer
from azq.arena.engines.process import EngineProcess
from azq.arena.match import play_match
from azq.arena.player import RESIGN, Ground, Line
from azq.arena.players import make_player
from azq.config import SearchConfig
from azq.errors import AzqError, ConfigError, EngineError
from azq.notation.boards import coordinates
from azq.waiting import AwakeClock
from azq.wire.messages import MatchSpec

OTHELLO = games.load("othello")
GOMOKU = games.load("gomoku", size=9)
RHINO = shutil.which("gtp-rhino", path=f"{os.environ.get('PATH', '')}:/usr/games")

ENGINE = """
import sys
size, stones, manner = 0, set(), sys.argv[1] if len(sys.argv) > 1 else ""
for line in sys.stdin:
    name, *words = line.split()
    reply = "= "
    if name == "boardsize":
        size = int(words[0])
    elif name == "clear_board":
        stones = set()
    elif name == "play":
        if words[1] in stones:
            reply = "? illegal move"
        stones.add(words[1])
    elif name == "genmove":
        if manner == "crash":
            sys.exit("a bug in line 7")
        if manner == "hang":
            import time; time.sleep(1000)
        cells = [letter + str(row) for row in range(1, size + 1) for letter in "ABCDEFGHJKLMNOPQRST"[:size]]
        move = next(cell for cell in cells if cell not in stones)
        if manner in ("resign", "Z99", "pass"):
            move = manner
        else:
            stones.add(move)
        reply += move
    elif name.startswith("time") and manner == "timeless":
        reply = "? unknown command"
    print("\\n# a comment\\n" + reply + "\\n", flush=True)
"""


@pytest.fixture
def engine(tmp_path: Path) -> str:
    path = tmp_path / "engine.py"
    path.write_text(ENGINE)
    return f"{sys.executable} {path}"


def start(script: str, deadline_s: float = 10.0, **more: object) -> EngineProcess:
    return EngineProcess("mine", [sys.executable, "-c", script], remedy="reinstall it", deadline_s=deadline_s, **more)  # type: ignore[arg-type]


ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"


def test_a_question_gets_its_answer_and_the_process_ends_with_its_input(tmp_path: Path) -> None:
    process = start(f"{ECHO}\nopen({str(tmp_path / 'ended')!r}, 'w').close()")
    assert process.ask("hello", "here") == ["HELLO"]
    assert process.ask("x" * 100_000, "here") == ["X" * 100_000]  # more than a pipe holds
    process.close()
    assert (tmp_path / "ended").exists()  # by the end of its input, not by a signal


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("import sys; sys.stdin.readline(); sys.exit('the reason')", r"died \(exit code 1\).*the reason"),
        ("import os; os.kill(os.getpid(), 9)", r"died \(exit code -9\)"),
        ("import time; time.sleep(100)", r"no answer to 'hello' within 0.3 s"),
        ("import sys; sys.stdout.write('half'); sys.stdout.flush(); sys.stdin.read()", "no answer"),
        ("import sys\nwhile True: sys.stdout.write('x' * 100000)", "bytes"),
    ],
)
def test_whatever_goes_wrong_is_one_error_with_engine_place_and_remedy(script: str, named: str) -> None:
    process = start(script, deadline_s=0.3 if "answer" in named else 10.0)
    with pytest.raises(EngineError, match=named) as caught:
        process.ask("hello", "position P")
    for part in ("engine mine", "position P", "reinstall it"):
        assert part in str(caught.value)
    with pytest.raises(EngineError, match="ended"):
        process.ask("hello", "position P")
    process.close()


def test_a_pause_of_everything_is_no_silence_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 3600.0])
    monkeypatch.setattr(process_module, "AwakeClock", lambda: AwakeClock(lambda: next(now, 3600.0)))
    process = start(ECHO)
    assert process.ask("hello", "here") == ["HELLO"]
    process.close()


def test_nonsense_is_no_json() -> None:
    for answer in ("print('[1]')", "print('{')"):
        with pytest.raises(EngineError, match="nonsense"):
            start(f"input(); {answer}").ask_json({}, "position P")


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(EngineError, match=r"no-such-program.*reinstall"):
        EngineProcess("mine", ["no-such-program"], remedy="reinstall it")


def test_what_the_engine_started_ends_with_it() -> None:
    script = "import subprocess\ninput()\nprint(subprocess.Popen(['sleep', '100']).pid, flush=True)\nimport time; time.sleep(100)"
    process = start(script)
    child = int(process.ask("go", "here")[0])
    process.kill()
    until(lambda: not _alive(child), "the end of its child")


def _alive(pid: int) -> bool:
    """Whether a process runs: neither gone nor waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_tick_goes_on_while_an_engine_thinks_and_can_end_it() -> None:
    class Enough(AzqError):
        pass

    ticks = iter(range(3))

    def tick() -> None:
        if next(ticks, None) is None:
            raise Enough

    process = start("import time; time.sleep(100)", tick=tick)
    with pytest.raises(Enough):
        process.ask("hello", "here")
    process.kill()


@pytest.mark.parametrize(("name", "size"), [("othello", 8), ("gomoku", 9), ("hex", 7)])
def test_every_action_has_a_vertex_and_comes_back(name: str, size: int) -> None:
    game = games.load(name, size=size)
    cells = coordinates(game)
    vertices = [cells.vertex(action) for action in range(game.num_distinct_actions())]
    assert len(set(vertices)) == len(vertices)
    assert [cells.action(vertex.lower()) for vertex in vertices] == list(range(len(vertices)))


def test_coordinates_are_those_of_the_engines() -> None:
    othello = coordinates(OTHELLO)
    assert {othello.vertex(action) for action in OTHELLO.new_initial_state().legal_actions()} == {"D3", "C4", "F5", "E6"}
    assert coordinates(GOMOKU).vertex(0) == "A9"
    assert coordinates(GOMOKU).vertex(80) == "J1"
    for other in (games.load("connect_four"), games.load("hex", swap=True)):
        with pytest.raises(ConfigError, match=other.name):
            coordinates(other)


@given(st.text(max_size=8))
def test_what_is_no_vertex_is_no_action(text: str) -> None:
    action = coordinates(OTHELLO).action(text)
    assert action is None or coordinates(OTHELLO).vertex(action) == text.strip().upper()


def test_an_engine_stays_in_step_over_games_that_take_turns(engine: str) -> None:
    player = GtpPlayer(engine, GOMOKU)
    try:
        assert player.choose([[], [72], [72, 73]]) == [72, 73, 74]  # A1, B1, C1: the lowest row
        assert player.choose([[72, 0], [72, 73]]) == [73, 74]
        with pytest.raises(EngineError, match="notation"):
            player.choose([Line(GOMOKU.new_initial_state())])
    finally:
        player.close()


@pytest.mark.parametrize(("manner", "named"), [("crash", "bug in line 7"), ("hang", "no answer"), ("Z99", "Z99"), ("pass", "pass")])
def test_a_broken_engine_is_an_error_that_quotes_it(engine: str, manner: str, named: str) -> None:
    player = GtpPlayer(f"{engine} {manner}", GOMOKU, deadline_s=2.0 if manner == "hang" else 20.0)
    with pytest.raises(EngineError, match=named) as caught:
        player.choose([[72]])
    assert GOMOKU.new_initial_state().notation()[:3] in str(caught.value)
    player.close()


def test_an_engine_may_resign(engine: str) -> None:
    player = GtpPlayer(f"{engine} resign", GOMOKU)
    assert player.choose([[72]]) == [RESIGN]
    player.close()


@pytest.mark.parametrize("manner", ["", "timeless"])
def test_an_engine_gets_its_time_before_each_move(manner: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, ask = list[str](), EngineProcess.ask
    monkeypatch.setattr(EngineProcess, "ask", lambda self, line, *more, **named: lines.append(line) or ask(self, line, *more, **named))
    player = GtpPlayer(f"{engine} {manner}", GOMOKU, move_ms=250)
    assert len(player.choose([[72], []])) == 2  # the white stone, then the first black one
    player.close()
    assert lines[0] == "time_settings 0 0.25 1"
    before = [lines[number - 1] for number, line in enumerate(lines) if line.startswith("genmove")]
    assert before == ["time_left white 0.25 1", "time_left black 0.25 1"]


def test_a_command_line_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="quotation"):
        GtpPlayer('engine "', OTHELLO)
    with pytest.raises(ConfigError, match="gtp:<command>"):
        make_player("gtp:", Ground(OTHELLO, None, SearchConfig(), 1))


def test_only_commands_that_are_allowed_are_started(engine: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    ground = Ground(GOMOKU, None, SearchConfig(), 1, engines=[engine])
    with pytest.raises(EngineError, match=r"worker\.engines"):
        make_player(f"gtp:touch {marker}", ground)
    with pytest.raises(EngineError, match=r"worker\.engines"):
        make_player(f"gtp:{engine}", Ground(GOMOKU, None, SearchConfig(), 1))
    assert not marker.exists()
    make_player(f"gtp:{engine}", ground).close()


def test_an_engine_sees_no_secret_of_the_process_that_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "AZQ_BROKER__CONTROL_URL": "redis://:planted@h:1/0",
        "AZQ_DAEMON": '{"token": "planted"}',
        "AWS_SECRET_ACCESS_KEY": "planted",
    }
    for name, value in {**secrets, "LC_ALL": "C.UTF-8"}.items():
        monkeypatch.setenv(name, value)
    code = "import json, os, sys; [print(json.dumps(dict(os.environ)), flush=True) for _ in sys.stdin]"
    process = EngineProcess("spy", [sys.executable, "-c", code], remedy="none")
    seen = process.ask_json({}, "the start")
    process.close()
    assert "planted" not in str(seen)
    assert (seen["LC_ALL"], seen["PATH"]) == ("C.UTF-8", os.environ["PATH"])


@pytest.mark.skipif(RHINO is None, reason="gtp-rhino is not installed")
def test_rhino_beats_random_players_through_passes() -> None:
    ground = Ground(OTHELLO, None, SearchConfig(), 1, seed=2, engines=[str(RHINO)])
    rhino, other = make_player(f"gtp:{RHINO}", ground), make_player("random", ground)
    try:
        result = play_match(MatchSpec(rhino.name, "random", 20, 1, 6, 4), OTHELLO, rhino, other)
    finally:
        rhino.close()
    assert result.wins >= 19
