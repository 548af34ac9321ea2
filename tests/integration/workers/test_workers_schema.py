"""Processes of another schema are refused by name and number, and what they left on the streams stops nobody."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from waiting import PATIENCE_S, until
from worker_doubles import RUN, Fleet

from azq.bus.redis import RedisBus
from azq.errors import DO_NOT_RESTART, ExitCode, SchemaMismatch
from azq.wire import keys
from azq.wire.connect import agree_on_schema, connect
from azq.wire.messages import SCHEMA, EvalRequest, GameRecord, SampleEvent, WeightEvent

OTHER = SCHEMA + 1
IMPORTS = "import sys; from azq.config import load; from azq.process.start import run_main; "
MAINS = {
    "selfplay": "from workers.worker import main; sys.exit(run_main('selfplay', lambda: main(load(), ['selfplay.cpu'], 1)))",
    "inference": "from workers.inference import main; sys.exit(run_main('inference', lambda: main(load())))",
    "learner": f"from workers.learner import main; sys.exit(run_main('learner', lambda: main(load(), {RUN!r})))",
    "daemon": "from daemon.api.rest import serving; from daemon.main import main; "
    "sys.exit(run_main('daemon', lambda: main(load(None, ['daemon.port=0']), lambda: serving)))",
}


@pytest.mark.parametrize("roles", [("selfplay", "daemon"), pytest.param(("inference", "learner"), marks=pytest.mark.release)])
def test_processes_of_another_schema_are_refused_while_the_others_go_on(fleet: Fleet, roles: tuple[str, ...]) -> None:
    fleet.create_run()
    fleet.start()
    fleet.send(slice_s=3600.0)
    fleet.playing()
    other = f"import azq.wire.messages as m; m.SCHEMA, m.READABLE = {OTHER}, ({OTHER},); "
    strangers = {role: fleet._spawn(other + IMPORTS + MAINS[role]) for role in roles}
    for role, process in strangers.items():
        assert process.wait(PATIENCE_S) == ExitCode.SCHEMA, role
    assert ExitCode.SCHEMA in DO_NOT_RESTART
    remedy = "finish its runs with the azq that began them"
    assert fleet.log().count(f"has schema {SCHEMA}, this azq speaks {OTHER}; {remedy}") == len(roles)
    before = fleet.finished()
    until(lambda: fleet.finished() > before, "a game after the strangers were sent away")


def test_an_older_azq_is_told_to_upgrade(fleet: Fleet) -> None:
    fleet.client.set(keys.SCHEMA, OTHER)
    for upgrade in (False, True):
        with pytest.raises(SchemaMismatch, match=f"has schema {OTHER}, this azq speaks {SCHEMA}; install the azq that its daemon runs"):
            agree_on_schema(fleet.client, upgrade=upgrade)
    assert fleet.client.get(keys.SCHEMA) == str(OTHER).encode()


def test_the_first_run_marks_a_fresh_plane(fleet: Fleet) -> None:
    fleet.create_run()
    assert fleet.client.get(keys.SCHEMA) == str(SCHEMA).encode()
    agree_on_schema(fleet.client)


def test_the_daemon_raises_an_older_plane_that_it_can_read_and_workers_wait_for_that(fleet: Fleet) -> None:
    fleet.create_run()
    fleet.client.delete(keys.SCHEMA)  # as a plane from before there was a mark
    with pytest.raises(SchemaMismatch, match=f"has schema 1, this azq speaks {SCHEMA}; start the daemon of this azq first"):
        agree_on_schema(fleet.client)
    agree_on_schema(fleet.client, upgrade=True)
    agree_on_schema(fleet.client)


def test_a_plane_too_old_to_read_is_left_alone(fleet: Fleet) -> None:
    fleet.client.set(keys.SCHEMA, 0)
    with pytest.raises(SchemaMismatch, match="finish its runs with the azq that began them"):
        agree_on_schema(fleet.client, upgrade=True)
    assert fleet.client.get(keys.SCHEMA) == b"0"


def frame(message: Any) -> bytes:
    return msgspec.msgpack.encode((OTHER, message))


def test_frames_of_another_schema_go_to_the_dead_letters(fleet: Fleet, broker: Any) -> None:
    fleet.create_run(evaluator="stream", games_in_flight=4)
    data = RedisBus(connect(broker.data_url))
    fleet.bus.publish(keys.weights(RUN), frame(WeightEvent(RUN, 9, "0" * 64, "file:none", 0, 0)))
    data.publish(keys.eval_stream(RUN), frame(EvalRequest(1, "stranger", 0, 1, b"\0", 0)))
    fleet.bus.publish(keys.samples(RUN), frame(SampleEvent(GameRecord(10**6), (1.0, -1.0), "stranger", 0)))
    fleet._spawn(IMPORTS + MAINS["learner"])
    fleet.start_inference()
    until(lambda: data.dead_letters() == fleet.bus.dead_letters() == 1, "dead letters of request and sample")
    fleet.start()
    fleet.send(slice_s=3600.0)
    until(lambda: fleet.ledger.counts(RUN).inserted > 5, "games played, evaluated and learned from")
    assert fleet.ledger.counts(RUN).balanced
    data.close()
