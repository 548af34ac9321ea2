"""One run at a glance, from plain values."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from factories import heartbeat
from reconcile_worlds import view

from azq.ledger.types import JobState, LedgerCounts, RunState, RunView
from azq.ratings.elo import Rating, Scored
from azq.ratings.matches import split
from azq.status.conditions import Died
from azq.status.stages import RunFirsts
from azq.status.strength import Standing, Strength, strength
from azq.status.summary import NetworkStatus, RanksStatus, RunFacts, failed_matches, ranks_status, summarise
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.machines import MachineTime, ProcessDeath, Spending
from azq.wire.messages import GradeResult, Heartbeat, HistoryPoint, LearnerStatus, MatchResult, MatchSpec, RunRecord, WeightEvent

VIEW = RunView(RunRecord("r", b"{}", {"minutes": 5.0}, "runs/r", 0), RunState.RUNNING, "", 90_000, 0)
COUNTS = LedgerCounts(10, 6, 3, 1, 5, 1, 0)


def beat(role: str, worker: str, run: str = "", versions: dict[str, int] | None = None, **rates: float) -> Heartbeat:
    return heartbeat(role, worker, sent_ms=4_000, run=run, rates=rates, weight_versions=versions or {})


def test_a_crash_loop_is_a_condition_and_a_figure() -> None:
    death = ProcessDeath("learner", "h", 7, "r", "SIGSEGV", "/l.log")
    status = summarise(RunFacts(VIEW, COUNTS, deaths=[Died(at_ms, death) for at_ms in (1_000, 2_000, 3_000)]), 5_000)
    assert status.conditions == ("learner died 3 times in 2 s: SIGSEGV; log h:/l.log",)
    assert status.crash_loops == 1


def test_a_ledger_that_was_mended_is_a_condition_and_a_figure() -> None:
    status = summarise(RunFacts(VIEW, COUNTS, mended={"WRONGTYPE of azq:{r}:pool": 65_000}), 185_000)
    (told,) = status.conditions
    assert told.startswith("self-play failed in the ledger: WRONGTYPE of azq:{r}:pool; the daemon mended it 2 min ago")
    assert status.ledger_mended == 1


def test_the_end_of_a_run_is_told_by_its_pace_and_not_while_it_rests() -> None:
    goals = msgspec.structs.replace(VIEW.record, until={"minutes": 5.0, "games": 16.0, "steps": 20.0, "money": 2.0})
    running = replace(VIEW, record=goals)
    before = HistoryPoint(0, active_ms=70_000, games=1)
    status = summarise(RunFacts(running, replace(COUNTS, finished=11), point=before), 5_000)
    assert (status.eta_by, status.eta_s) == ("games=16", 10.0)
    still = msgspec.structs.replace(before, games=COUNTS.finished)
    slow = summarise(RunFacts(running, COUNTS, point=still), 5_000)  # no games, no steps: only the clock goes on
    assert (slow.eta_by, slow.eta_s) == ("minutes=5", 210.0)
    rests = summarise(RunFacts(replace(running, state=RunState.PAUSED), COUNTS, point=before), 5_000)
    assert (rests.eta_by, rests.eta_s) == ("", None)


def test_steps_and_money_have_a_pace_too() -> None:
    record = msgspec.structs.replace(VIEW.record, until={"steps": 60.0, "money": 4.0})
    before = HistoryPoint(0, active_ms=70_000, step=0)
    facts = RunFacts(replace(VIEW, record=record), COUNTS, learner=LEARNER, point=before)
    by_steps = summarise(facts, 5_000)
    assert (by_steps.eta_by, by_steps.eta_s) == ("steps=60", 10.0)  # 20 of them, two a second
    dear = Spending(per_hour=3_600.0, currency="EUR", machines={"gpu": MachineTime("tower", 3_600.0, ("inference",), 3_000, 0.0, 3.0)})
    by_money = summarise(replace(facts, spent=dear), 5_000)
    assert (by_money.eta_by, by_money.eta_s) == ("money=4", 1.0)
    assert by_money.cost is not None
    assert (by_money.cost.money, by_money.cost.per_hour, by_money.cost.ends_by) == (3.0, 3_600.0, "money=4")
    rests = summarise(replace(facts, view=replace(facts.view, state=RunState.PAUSED), spent=dear), 5_000)
    assert rests.cost is not None
    assert (rests.cost.per_hour, rests.cost.ends_by, rests.cost.ends_in_s) == (0.0, "", None)


LEARNER = LearnerStatus(
    40, 200, 500, 5, 0, 150, 1.5, 0.5, 0.125, 3, False, True, 64.0, 0, 0.25, 4, 2, 7, batch_s=0.5, sync_s=0.125, scaling_efficiency=0.75
)


def test_a_finished_run_is_in_its_final_stage_while_it_is_evaluated() -> None:
    over = RunFacts(RunView(VIEW.record, RunState.FINISHED, "", 90_000, 90_000), COUNTS, firsts=RunFirsts(1_000, 2_000))
    job = view(1, JobState.QUEUED, kind=Kind.EVAL)
    grade = GradeResult(3, 64, 200, 16, 95_000)
    for facts, final in (
        (over, ("main", 90_000)),
        (replace(over, jobs=(job,)), ("final", None)),
        (replace(over, jobs=(view(1),)), ("main", 90_000)),
        (replace(over, standing=Standing(grades=(grade,))), ("final", 95_000)),
    ):
        stages = summarise(facts, 99_000).stages
        assert (stages[-1].name, stages[-1].ended_ms) == final


def test_what_is_not_measured_yet_is_nothing_and_no_error() -> None:
    status = summarise(RunFacts(VIEW, COUNTS, point=HistoryPoint(0, active_ms=30_000, games=6)), 5_000)
    assert (status.games_per_s, status.mean_batch, status.samples_per_insert, status.policy_lag) == (0.0, 0.0, 0.0, 0.0)
    assert (status.learner_live, status.loss_policy, status.strength) == (False, None, Strength())
    assert (status.open_games, status.active_s, status.ledger.balanced) == (3, 90.0, True)
    assert (status.progress, status.samples, status.window, status.samples_per_s, status.learner_step) == (0.3, 0, 0, 0.0, 0)
    assert (status.learning_rate, status.loss_value, status.weight_version, status.learner_waiting) == (None, None, 0, False)
    assert (status.jobs_queued, status.jobs_leased, status.draining, status.selfplay_stalled) == (0, 0, False, False)
    assert (status.reason, status.conditions, status.not_served) == ("", (), {})
    assert status.ranks == RanksStatus(1, 0, 0, 0, False, 0, 0.0, 0.0, 1.0)


def test_what_a_live_learner_says_is_shown() -> None:
    status = summarise(RunFacts(VIEW, COUNTS, learner=LEARNER), 5_000)
    assert (status.samples, status.window, status.samples_per_insert, status.learner_step) == (200, 150, 2.5, 40)
    assert (status.loss_policy, status.loss_value, status.learning_rate) == (1.5, 0.5, 0.125)
    assert (status.samples_per_insert, status.learner_live, status.learner_waiting, status.weight_version) == (2.5, True, True, 3)
    assert status.ranks == RanksStatus(4, 2, 2, 7, True, 500, 0.5, 0.125, 0.75)


def test_a_learner_that_has_not_begun_has_no_losses_and_no_ratio() -> None:
    fresh = msgspec.structs.replace(LEARNER, step=0, samples_inserted=0, ranks=2, ranks_healthy=2)
    status = summarise(RunFacts(VIEW, COUNTS, learner=fresh), 5_000)
    assert (status.loss_policy, status.loss_value, status.samples_per_insert, status.learner_step) == (None, None, 0.0, 0)
    assert (status.ranks.failed, status.ranks.fallback_active) == (0, False)
    assert ranks_status(msgspec.structs.replace(fresh, ranks_healthy=3)).failed == 0  # one that leaves is still there
    assert ranks_status(msgspec.structs.replace(fresh, ranks_healthy=1)).fallback_active
    first = summarise(RunFacts(VIEW, COUNTS, learner=msgspec.structs.replace(LEARNER, step=1)), 5_000)
    assert (first.loss_policy, first.loss_value) == (1.5, 0.5)


def test_the_newest_weights_are_those_of_whoever_knows_newer_ones() -> None:
    for published, newest in ((7, 7), (2, 3)):
        facts = RunFacts(VIEW, COUNTS, learner=LEARNER, weights=WeightEvent("r", published, "", "", 0, 0))
        assert summarise(facts, 0).weight_version == newest


def test_jobs_are_counted_by_state_and_a_run_that_does_not_go_on_drains_while_any_is_leased() -> None:
    jobs = (view(1), view(2), view(3, JobState.QUEUED))
    status = summarise(RunFacts(VIEW, COUNTS, jobs=jobs), 0)
    assert (status.jobs_queued, status.jobs_leased, status.draining) == (1, 2, False)
    paused = RunView(VIEW.record, RunState.PAUSED, "", 90_000, 0)
    assert summarise(RunFacts(paused, COUNTS, jobs=jobs[1:]), 0).draining
    assert not summarise(RunFacts(paused, COUNTS, jobs=jobs[2:]), 0).draining


def test_selfplay_stalls_by_the_learners_word_or_by_finished_games_that_wait() -> None:
    record = RunRecord("r", b'{"selfplay": {"max_waiting_games": 3}}', {}, "runs/r", 0)
    run = RunView(record, RunState.RUNNING, "", 0, 0)

    def stalls(in_transit: int, learner: LearnerStatus | None) -> bool:
        counts = LedgerCounts(10, 6, 3, 1, 6 - in_transit, in_transit, 0)
        return summarise(RunFacts(run, counts, learner=learner), 0).selfplay_stalled

    assert [stalls(2, LEARNER), stalls(3, LEARNER), stalls(2, None), stalls(3, None)] == [False, True, False, True]
    assert stalls(0, msgspec.structs.replace(LEARNER, stall_selfplay=True))


def test_workers_of_another_run_are_no_part_of_it() -> None:
    workers = (beat("selfplay", "all", games_per_s=1.0), beat("selfplay", "own", run="r"), beat("selfplay", "other", run="s"))
    assert [worker.worker for worker in summarise(RunFacts(VIEW, COUNTS, workers=workers), 0).workers] == ["all", "own"]


def test_rates_are_the_runs_own_whatever_the_fleet_does() -> None:
    workers = (
        beat("selfplay", "a", games_per_s=50.0, simulations_per_s=10.0, evaluations_per_s=9.0),
        beat("inference", "i", evaluations_per_s=30.0, mean_batch=10.0),
        beat("learner", "l", run="other", games_per_s=1000.0),
    )
    counts = replace(COUNTS, finished=26, simulations=4_000, evaluations=2_000, requests=50)
    facts = RunFacts(VIEW, counts, workers=workers, point=HistoryPoint(0, active_ms=70_000, games=6), learner=LEARNER)
    status = summarise(facts, 5_000)
    assert (status.games_per_s, status.simulations_per_s, status.evaluations_per_s, status.mean_batch) == (1.0, 200.0, 100.0, 40.0)
    assert (status.samples_per_s, status.steps_per_s) == (25.0, 2.0)
    for state in (RunState.PAUSED, RunState.FINISHED, RunState.FAILED):
        rests = summarise(replace(facts, view=replace(VIEW, state=state)), 5_000)
        assert (rests.games_per_s, rests.simulations_per_s, rests.evaluations_per_s, rests.mean_batch, rests.network_busy) == (0.0,) * 5


def test_policy_lag_follows_from_the_versions_of_workers_while_it_runs() -> None:
    workers = (beat("selfplay", "a", versions={"r": 2}), beat("selfplay", "b", versions={"r": 1}))
    facts = RunFacts(VIEW, COUNTS, workers=workers, learner=LEARNER)
    assert summarise(facts, 0).policy_lag == 1.5
    assert summarise(replace(facts, view=replace(VIEW, state=RunState.FINISHED)), 0).policy_lag == 0.0


def test_what_a_learner_said_last_stays_when_it_is_gone() -> None:
    over = replace(VIEW, state=RunState.FINISHED, active_ms=300_000)
    live = summarise(RunFacts(VIEW, COUNTS, learner=LEARNER), 0)
    status = summarise(RunFacts(over, COUNTS, learned=LEARNER), 0)
    assert (status.learner_live, status.learner_waiting, status.ranks) == (False, False, RanksStatus())
    assert status.progress == 1.0
    for name in ("samples", "window", "learner_step", "loss_policy", "loss_value", "learning_rate", "samples_per_insert", "weight_version"):
        assert getattr(status, name) == getattr(live, name), name


def test_of_an_older_run_the_weights_tell_how_far_it_learned() -> None:
    told = WeightEvent("r", 7, "", "", 40, 0, samples=200)
    status = summarise(RunFacts(replace(VIEW, state=RunState.FINISHED), COUNTS, weights=told), 0)
    assert (status.learner_step, status.samples, status.weight_version, status.loss_policy) == (40, 200, 7, None)


def test_strength_takes_the_newest_grade_and_the_rating_of_the_newest_version() -> None:
    grades = [GradeResult(9, 64, 0, 0, 0), GradeResult(8, 64, 200, 30, 0), GradeResult(7, 64, 200, 60, 0)]
    ratings = [Rating("uct:100", 0, 0, 0, 9, 4), Rating("weights:10", 55, 5, 105, 9, 4), Rating("weights:9", 90, 50, 130, 9, 4)]
    assert strength(Standing(grades=grades, ratings=ratings)) == Strength(8, 0.15, 200, 10, 55, 5, 105)
    unknown = [Rating("weights:x", 9, 9, 9, 9, 4), Rating("gtp:12", 9, 9, 9, 9, 4)]
    assert strength(Standing(grades=[GradeResult(7, 64, 1, 1, 0)], ratings=unknown)) == Strength(7, 1.0, 1)


def test_ratings_are_those_of_its_matches() -> None:
    assert summarise(RunFacts(VIEW, COUNTS, standing=Standing(ratings=[Rating("weights:1", 5, 4, 6, 9, 4)])), 0).strength.elo == 5
    assert summarise(RunFacts(VIEW, COUNTS, standing=Standing(ratings=[Rating("weights:2", 7, 6, 8, 9, 4)])), 0).strength.elo == 7


def test_an_opponent_whose_newest_match_an_engine_ended_is_named() -> None:
    def match(opponent: str, error: str) -> MatchResult:
        return MatchResult(MatchSpec("weights:1", opponent, 2, 8, 0, 0), "weights:1", opponent, 0, 0, 0, 0, error=error)

    newest_first = [match("gtp:a", "engine gtp:a died"), match("gtp:b", ""), match("gtp:a", ""), match("gtp:b", "engine gtp:b hung")]
    assert failed_matches(newest_first) == ["the match against gtp:a failed: engine gtp:a died"]


def test_a_network_is_as_large_as_the_newest_weights_say() -> None:
    record = RunRecord("r", b'{"network": {"kind": "mlp", "blocks": 2, "channels": 32}}', {}, "runs/r", 0)
    view = RunView(record, RunState.RUNNING, "", 0, 0)

    def network(weights: WeightEvent | None) -> NetworkStatus | None:
        return summarise(RunFacts(view, COUNTS, weights=weights), 0).network

    grown = network(WeightEvent("r", 7, "", "", 900, 0, blocks=4, channels=48))
    assert grown == NetworkStatus("mlp", 2, 32, 4, 48)
    assert str(grown) == "4x48, from 2x32"
    assert str(network(WeightEvent("r", 1, "", "", 0, 0, blocks=2, channels=32))) == "2x32"
    for weights in (None, WeightEvent("r", 1, "", "", 0, 0)):  # none yet, or of an azq whose events do not say
        unknown = network(weights)
        assert unknown is not None
        assert (unknown.blocks, unknown.channels, str(unknown)) == (None, None, "2x32")


def test_settings_that_do_not_parse_have_the_network_that_is_the_default() -> None:
    default = summarise(RunFacts(VIEW, COUNTS), 0).network
    broken = RunView(RunRecord("r", b"oops", {}, "runs/r", 0), RunState.FAILED, "", 0, 0)
    assert default is not None
    assert summarise(RunFacts(broken, COUNTS), 0).network == default


def test_hosts_that_do_not_serve_a_run_are_named_with_their_reason() -> None:
    def inference(host: str, **unserved: str) -> Heartbeat:
        return heartbeat("inference", f"inference@{host}:1", host, unserved=unserved)

    workers = (*(inference(host, r="needs open_spiel") for host in "ab"), inference("c", r="KeyError"), inference("d", s="x"))
    status = summarise(RunFacts(VIEW, COUNTS, workers=workers), 0)
    assert status.not_served == {"a": "needs open_spiel", "b": "needs open_spiel", "c": "KeyError"}
    assert status.conditions == ("not served by a, b: needs open_spiel", "not served by c: KeyError")


def test_a_game_for_one_has_a_score_and_a_baseline_in_the_place_of_elo() -> None:
    versions = [Scored(f"weights:{version}", score, score - 10, score + 10, 20) for version, score in ((2, 250.0), (3, 200.0))]
    table = [Scored("rule", 300.0, 280.0, 320.0, 40), *versions]
    found = strength(Standing(scores=table))
    assert (found.rated_version, found.score, found.score_low, found.score_high) == (3, 200.0, 190.0, 210.0)
    assert (found.baseline, found.baseline_score, found.elo) == ("rule", 300.0, None)


def test_a_run_without_games_says_since_when_unless_positions_are_evaluated() -> None:
    began = HistoryPoint(0)
    idle = RunFacts(replace(VIEW, active_ms=20_000), LedgerCounts(0, 0, 0, 0, 0, 0, 0), point=began)
    assert summarise(idle, 0).no_games == "no game was begun in 20 s: no worker has taken a job of self-play"
    assert summarise(replace(idle, counts=LedgerCounts(8, 0, 8, 0, 0, 0, 0, evaluations=10)), 0).no_games == ""  # one in two seconds
    empty = replace(idle, counts=LedgerCounts(600, 600, 0, 0, 600, 0, 0), view=VIEW)
    silent = msgspec.structs.replace(LEARNER, samples_inserted=0)
    for known in (replace(empty, learner=silent), replace(empty, learned=silent)):
        assert summarise(known, 0).no_games.startswith("600 games and no sample")
    assert summarise(empty, 0).no_games == ""


def test_notes_of_workers_are_conditions_while_the_run_goes_on() -> None:
    facts = RunFacts(VIEW, COUNTS, workers=(heartbeat("inference", "i", note="served by: plain"),))
    assert "i: served by: plain" in summarise(facts, 0).conditions
    assert summarise(replace(facts, view=replace(VIEW, state=RunState.PAUSED)), 0).conditions == ()


def test_a_match_in_parts_says_how_far_it_is() -> None:
    spec = MatchSpec("weights:2", "uct:100", 200, 8, 0, 0)
    jobs = tuple(
        replace(queued, job=msgspec.structs.replace(queued.job, payload=encode(part)))
        for queued, part in zip((view(1, kind=Kind.EVAL), view(2, kind=Kind.EVAL)), split(spec, 100), strict=True)
    )
    assert summarise(RunFacts(VIEW, COUNTS, jobs=jobs), 0).matches == ("weights:2 - uct:100: 0 of 200",)
