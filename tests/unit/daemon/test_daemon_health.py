"""What the daemon knows of itself."""

from __future__ import annotations

from daemon.decide.actions import Condition
from daemon.serve.health import Health, why_not_ready

REPORT = Condition("unroutable", "r", "selfplay.cpu", "words")


def test_a_lasting_condition_is_logged_once_and_shown_all_the_while() -> None:
    health = Health()
    assert health.tick_ok([REPORT], now_s=100.0) == []
    assert health.tick_ok([REPORT], now_s=104.75) == []
    assert health.tick_ok([REPORT], now_s=105.0) == [REPORT]
    assert health.tick_ok([REPORT], now_s=105.0) == []
    assert health.tick_ok([REPORT], now_s=106.0) == []
    assert health.conditions("r") == [str(REPORT)]
    assert health.conditions("other") == []


def test_a_condition_that_went_away_and_came_back_starts_anew() -> None:
    health = Health()
    health.tick_ok([REPORT], now_s=100.0)
    health.tick_ok([], now_s=101.0)
    assert health.conditions("r") == []
    health.tick_ok([REPORT], now_s=102.0)
    assert health.tick_ok([REPORT], now_s=106.0) == []
    assert health.tick_ok([REPORT], now_s=107.0) == [REPORT]


def test_a_failed_look_between_two_others_delays_no_report() -> None:
    health = Health()
    health.tick_ok([REPORT], now_s=100.0)
    health.tick_failed("no broker", now_s=104.0)
    assert health.tick_ok([REPORT], now_s=106.0) == [REPORT]


def test_readiness_follows_the_last_tick() -> None:
    health = Health()
    assert why_not_ready(health.pulse, 0.0, 5.0) == "the first look at the broker is not done yet"
    health.tick_failed("no broker", now_s=9.0)
    assert why_not_ready(health.pulse, 9.0, 5.0) == "no broker"
    health.tick_ok([], now_s=10.0)
    assert why_not_ready(health.pulse, 14.0, 5.0) == ""
    assert why_not_ready(health.pulse, 15.0, 5.0) == ""
    assert why_not_ready(health.pulse, 16.0, 5.0) == "no look at the broker for 6 s"
    health.tick_failed("no broker", now_s=14.0)
    assert why_not_ready(health.pulse, 14.0, 5.0) == "no broker"
    assert (health.pulse.ticks, health.pulse.failed_ticks) == (3, 2)


def test_it_says_what_the_daemon_does_and_why_it_does_not() -> None:
    health = Health()
    health.tick_ok([], 0.0)
    assert health.status == "reconciling"
    health.tick_failed("no broker", 1.0)
    assert health.status == "degraded: no broker"
    health.tick_ok([], 2.0)
    assert health.status == "reconciling"
