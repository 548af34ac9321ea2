"""One learner a run, on whatever host; and one that drains a control plane that has no memory left."""

from __future__ import annotations

import pytest
from learner_processes import RUN, SECTIONS, Place
from waiting import until

from azq.bus.embedded import EmbeddedServer
from azq.errors import ExitCode, StateConflict
from azq.ledger.holder import held_place
from azq.wire import keys

ELSEWHERE = "elsewhere:17:1:another-boot/1"


def test_a_second_learner_gives_up_and_names_the_first(place):
    place.ledger.take_learner(RUN, ELSEWHERE, 60)
    with pytest.raises(StateConflict, match="pid 17 on elsewhere"), held_place(place.ledger, RUN, lambda seconds: True):
        raise AssertionError("two learners")


def test_a_learner_whose_place_was_taken_over_writes_nothing_more_and_ends(place):
    process = place.learner()
    place.finish_games(40)
    until(place.all_inserted, "the first games")
    place.client.hset(keys.learner_lease(RUN), mapping={"token": 99, "holder": ELSEWHERE})
    inserted, published = place.ledger.counts(RUN).inserted, place.client.xlen(keys.weights(RUN))
    place.finish_games(40)
    output = place.output(process)
    assert process.returncode == ExitCode.CONFLICT, output
    assert "pid 17 on elsewhere" in output
    assert place.ledger.counts(RUN).inserted == inserted
    assert place.client.xlen(keys.weights(RUN)) == published


def test_a_learner_drains_a_control_plane_that_is_full(tmp_path):
    server = EmbeddedServer("control", tmp_path / "broker")
    server.start()
    place = Place(server.url, tmp_path, SECTIONS)
    try:
        place.finish_games(400)
        place.client.xadd(keys.samples(RUN), {"f": b"noise"})  # its dead letter finds no memory at first
        used = place.client.info("memory")["used_memory"]
        place.client.config_set("maxmemory", used // 4)
        with pytest.raises(Exception, match="maxmemory"):
            place.client.set("more", b"x")
        process = place.learner()
        until(lambda: place.ledger.counts(RUN).inserted == 400, "all games taken in")
        until(lambda: "status_unsaid" in place.log(process), "a status that finds no memory")
        place.client.config_set("maxmemory", 2 * used)
        until(lambda: place.client.xlen(keys.samples(RUN)) == 0, "the noise set aside")
        place.finish_games(20)
        until(lambda: place.all_inserted() and place.ledger.counts(RUN).inserted == 420, "the games after")
        until(lambda: "status_said" in place.log(process), "a status that finds memory")  # asked for again with growing pauses
        place.stop(process)
        assert place.ledger.counts(RUN).balanced
    finally:
        place.close()
        server.stop()
