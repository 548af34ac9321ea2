"""Tabs and games of one run: who holds what, what counts, and that nothing counts twice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from azq.parts.volunteers.handouts import BYTES_ADDRESS, BYTES_EACH, NO_TERMS, GamesVerdict, GatewayCounts, Place, Stock, Terms, Tickets
from azq.parts.volunteers.reputation import HandOuts
from azq.parts.volunteers.sessions import CLAIMS_EACH, FULL, LATE, MATCH_HELD_S, NOT_YOURS, RETURN_S, Sessions, TabPatience
from azq.wire.messages import GameRecord
from azq.wire.tabs import MATCH_UIDS, Accepted, Refused, TabGame

PATIENCE = TabPatience(silent_s=30.0, late_s=90.0, batch_s=5.0)


TERMS = Terms(7, 50)
TICKETS = Tickets(b"secret", b"r 1")


def ticket(uid: int, contributor: str, record: GameRecord, terms: Terms = NO_TERMS) -> bytes:
    return TICKETS.issue(uid, contributor, record, terms)


def finished(uid: int, contributor: str, record: GameRecord | None = None, actions: bytes = b"\1\0") -> TabGame:
    return TabGame(uid, ticket(uid, contributor, record or GameRecord(uid)), actions, b"", b"", b"", b"")


def enter(sessions: Sessions, now_s: float = 0.0, address: str = "", room: int = 4, /, **contributors: int) -> Sessions:
    """Contributors come in, each in his tab."""
    for name, tab in contributors.items():
        sessions.enter(tab, name, now_s, address)
        sessions.tabs[tab].room = room
    return sessions


def opened(games: int = 3, **contributors: int) -> Sessions:
    """Sessions with `ann` in tab 1 and `bob` in tab 2, and games from 1 on under one lease."""
    sessions = enter(Sessions(TICKETS, PATIENCE), **(contributors or {"ann": 1, "bob": 2}))
    sessions.adopted("r:1", [GameRecord(uid) for uid in range(1, games + 1)], 0.0)
    return sessions


def judge_all(sessions: Sessions, now_s: float, refused: dict[int, str] | None = None) -> None:
    for _, contributor, batch in sessions.batches(lambda _: 1, now_s):
        bad = {uid: why for uid, why in (refused or {}).items() if uid in {each.record.uid for each in batch}}
        good = {each.record.uid: (1.0, -1.0) for each in batch if each.record.uid not in bad}
        sessions.judged(contributor, batch, GamesVerdict(good, bad), now_s)


def commit(sessions: Sessions, lease: str = "r:1") -> list[int]:
    events = sessions.to_commit(lease, 256, 7)
    sessions.committed(events, {event.worker.removeprefix("browser:"): {"games": len(events)} for event in events})
    return [event.record.uid for event in events]


def test_a_game_goes_out_comes_back_and_counts_once():
    sessions = opened()
    assert sessions.wanted(0.0) == 5
    handed = sessions.hand(1, 0.0, terms=TERMS)
    assert [(record.uid, mark) for record, mark in handed] == [(uid, ticket(uid, "ann", GameRecord(uid), TERMS)) for uid in (1, 2, 3)]
    assert sessions.hand(2, 0.0) == []
    sessions.bring(1, finished(2, "ann"), 1.0)
    sessions.bring(1, finished(2, "ann"), 1.0)
    judge_all(sessions, 1.0)
    (event,) = sessions.to_commit("r:1", 256, 7)
    assert (event.record.uid, event.worker, event.returns, event.finished_ms) == (2, "browser:ann", (1.0, -1.0), 7)
    assert commit(sessions) == [2]
    assert commit(sessions) == []
    assert sessions.take_answers() == [(1, Accepted((2,), {"games": 1}))]
    sessions.bring(1, finished(2, "ann"), 2.0)
    assert sessions.take_answers() == [(1, Accepted((2,)))], "the answer may have been lost"
    assert sessions.counts == {"accepted": 1, "duplicate": 2}


def with_match(games: int = 6, match_room: int = 4) -> Sessions:
    """As `opened`, with a match under a lease of its own."""
    sessions = opened()
    for tab in sessions.tabs.values():
        tab.match_room = match_room
    sessions.adopted("r:2", [GameRecord(MATCH_UIDS + place) for place in range(games)], 0.0)
    return sessions


def places(handed: list[tuple[GameRecord, bytes]]) -> list[int]:
    return [record.uid - MATCH_UIDS for record, _ in handed]


def test_games_of_a_match_are_handed_out_besides_others_to_those_who_play_them():
    sessions = with_match()
    assert sessions.wanted(0.0) == 5, "a match is no stock of self-play"
    assert [record.uid for record, _ in sessions.hand(1, 0.0)] == [1, 2, 3]
    assert places(sessions.hand(1, 0.0, "r:2")) == [0, 1, 2, 3]
    assert sessions.hand(1, 0.0, "r:2") == []
    assert sessions.hand(2, 0.0, "r:9") == []
    assert places(sessions.hand(2, 0.0, "r:2")) == [4, 5]
    sessions.tabs[2].match_room = 0
    sessions.leave(1, 1.0, for_good=True)
    assert sessions.hand(2, 1.0, "r:2") == [], "it plays none any more"
    sessions.tabs[2].match_room = 4
    assert places(sessions.hand(2, 1.0, "r:2")) == [0, 1]


def test_a_match_that_is_lost_waits_for_its_next_lease_and_for_no_other():
    sessions = with_match()
    sessions.hand(1, 0.0, "r:2")
    sessions.bring(1, finished(MATCH_UIDS, "ann"), 1.0)
    sessions.lost("r:2", 2.0)
    assert sessions.claimed() == [], "the pool has no games of matches"
    sessions.adopted("r:2", [GameRecord(MATCH_UIDS + place) for place in range(6)], 3.0)
    assert sessions.games[MATCH_UIDS].place is Place.RETURNED
    assert sessions.games[MATCH_UIDS + 1].contributor == "ann"
    assert sessions.games[MATCH_UIDS + 5].place is Place.WAITING


def test_who_keeps_a_match_waiting_loses_his_games_and_gets_no_more():
    sessions = with_match()
    sessions.hand(1, 0.0)
    sessions.hand(1, 0.0, "r:2")
    playing = tuple(sessions.tabs[1].plays)
    for now_s in range(0, int(MATCH_HELD_S), 10):
        sessions.hear(1, playing, now_s)
        sessions.hear(2, (), now_s)
        sessions.expire(now_s)
    assert len(sessions.tabs[1].plays) == 7
    sessions.hear(1, playing, MATCH_HELD_S)
    sessions.hear(2, (), MATCH_HELD_S)
    sessions.expire(MATCH_HELD_S)
    assert sessions.tabs[1].plays == {1, 2, 3}
    assert sessions.hand(1, MATCH_HELD_S, "r:2") == []
    assert len(sessions.hand(2, MATCH_HELD_S, "r:2")) == 4
    sessions.bring(1, finished(MATCH_UIDS, "ann"), MATCH_HELD_S)
    assert sessions.games[MATCH_UIDS].place is Place.RETURNED, "who brings it first has it"


def test_silent_tabs_lose_their_games_and_may_still_be_first():
    sessions = opened()
    sessions.hand(1, 0.0)
    sessions.hear(1, (1, 2, 3), 20.0)
    sessions.expire(49.0)
    assert sessions.hand(2, 0.0) == []
    sessions.expire(50.0)
    assert sessions.hand(1, 50.0) == [], "it gets nothing while it is silent"
    sessions.hear(2, (), 50.0)
    assert len(sessions.hand(2, 50.0)) == 3
    sessions.bring(2, finished(1, "bob"), 60.0)
    sessions.bring(1, finished(1, "ann"), 61.0)
    sessions.bring(1, finished(2, "ann"), 61.0)
    assert sessions.take_answers() == [(1, Refused(LATE, "", (1,))), (2, Refused(LATE, "", (2,)))]
    assert [(sessions.games[uid].contributor, sessions.games[uid].place) for uid in (1, 2)] == [
        ("bob", Place.RETURNED),
        ("ann", Place.RETURNED),
    ]


def test_a_game_that_a_tab_lost_goes_to_others():
    sessions = opened(games=2)
    sessions.hand(1, 0.0)
    sessions.hear(1, (1,), 29.0)
    assert sessions.tabs[1].plays == {1, 2}, "it may not have got it yet"
    sessions.hear(1, (1,), 30.0)
    sessions.hear(2, (), 30.0)
    assert [record.uid for record, _ in sessions.hand(2, 30.0)] == [2]


@pytest.mark.parametrize("for_good", [False, True])
def test_a_tab_that_left_finds_its_games_again_unless_it_said_bye(for_good):
    sessions = opened(games=1)
    sessions.hand(1, 0.0)
    sessions.leave(1, 10.0, for_good=for_good)
    assert len(sessions.hand(2, 10.0)) == for_good
    sessions.enter(3, "ann", 20.0)
    sessions.hear(3, (1,), 20.0)
    assert (sessions.games[1].tab == 3) == (not for_good)
    assert sessions.tabs[3].plays == (set() if for_good else {1})


def test_batches_fill_up_or_wait_for_a_while():
    sessions = opened()
    sessions.hand(1, 0.0)
    for uid in (1, 2):
        sessions.bring(1, finished(uid, "ann"), 1.0)
    assert list(sessions.batches(lambda _: 3, 2.0)) == []
    ((lease, contributor, batch),) = sessions.batches(lambda _: 2, 2.0)
    assert (lease, contributor, [each.record.uid for each in batch]) == ("r:1", "ann", [1, 2])
    assert list(sessions.batches(lambda _: 1, 9.0)) == [], "each is given out once"
    sessions.judged("ann", batch, GamesVerdict(), 9.0)
    assert len(list(sessions.batches(lambda _: 5, 14.0))) == 1, "without a verdict it is judged again"


def test_a_lost_lease_costs_nobody_his_game():
    sessions = opened()
    sessions.hand(1, 0.0)
    sessions.bring(1, finished(1, "ann"), 1.0)
    sessions.lost("r:1", 2.0)
    assert (sessions.games, sorted(sessions.claimed()), sessions.wanted(2.0)) == ({}, [1, 2, 3], 4 + 2)
    sessions.adopted("r:2", [GameRecord(1), GameRecord(2), GameRecord(9)], 3.0)
    judge_all(sessions, 3.0)
    assert commit(sessions, "r:2") == [1]
    assert sessions.games[2].place is Place.PLAYING
    assert sessions.games[9].place is Place.WAITING
    sessions.expire(91.0)
    assert sessions.take_answers() == [(1, Accepted((1,), {"games": 1}))]
    sessions.expire(92.0)
    assert sessions.take_answers() == [(1, Refused(LATE, "", (3,)))]
    assert sessions.tabs[1].plays == set()


def test_a_restarted_gateway_gives_games_to_who_has_their_tickets():
    sessions = opened(games=0)
    sessions.bring(2, finished(1, "ann"), 0.0)
    sessions.bring(1, finished(1, "ann"), 0.0)
    sessions.bring(1, finished(2, "ann"), 0.0)
    sessions.hear(2, (2, 3), 0.0)
    assert sorted(sessions.claimed()) == [1, 2, 3]
    sessions.adopted("r:2", [GameRecord(1), GameRecord(2, b"\5\0"), GameRecord(3)], 1.0)
    assert [(sessions.games[uid].place, sessions.games[uid].contributor) for uid in (1, 2, 3)] == [
        (Place.RETURNED, "ann"),
        (Place.PLAYING, "bob"),  # it has moved on since ann had it
        (Place.PLAYING, "bob"),
    ]
    assert sorted(sessions.take_answers(), key=lambda answer: answer[0]) == [
        (1, Refused(NOT_YOURS, "", (2,))),
        (2, Refused(NOT_YOURS, "", (1,))),
    ]


def test_a_new_gateway_takes_what_returning_tabs_claim_before_other_games():
    sessions = enter(Sessions(TICKETS, PATIENCE), 10.0, ann=1, bob=2)
    assert sessions.wanted(10.0) == 8  # nobody says that he has any
    sessions.hear(2, [7], 10.0)
    assert (sessions.claimed(), sessions.wanted(10.0)) == ([7], 0)
    sessions.bring(1, finished(8, "ann"), 11.0)
    sessions.adopted("r:2", [GameRecord(7), GameRecord(8)], 11.0)
    assert (sessions.games[7].contributor, sessions.games[8].place) == ("bob", Place.RETURNED)
    assert (sessions.wanted(10.0 + RETURN_S - 0.01), sessions.wanted(10.0 + RETURN_S)) == (0, 7)
    sessions.lost("r:2", 20.0)  # a lease that ends later holds nobody up
    assert sessions.wanted(20.0) == 7


def test_claims_have_an_end():
    sessions = opened(games=0)
    sessions.hear(1, range(1, CLAIMS_EACH + 2), 0.0)
    assert len(sessions.claimed()) == CLAIMS_EACH
    assert len(sessions.take_answers()) == 1
    sessions.bring(1, finished(CLAIMS_EACH + 2, "ann"), 0.0)
    assert sessions._stock.bytes == {}, "what comes to nothing takes no room"
    sessions.leave(1, 0.0, for_good=True)
    assert sessions.claimed() == []


@pytest.mark.parametrize("way", ["bye", "silence", "lost", "refused"])
def test_a_dropped_game_never_goes_to_the_same_one_or_his_address_again(way: str) -> None:
    sessions = opened(games=1, bob=2)
    enter(sessions, 0.0, "10.0.0.1", eve=1, mallory=3)
    sessions.hand(1, 0.0)
    if way == "bye":
        sessions.leave(1, 1.0, for_good=True)
    elif way == "silence":
        sessions.expire(31.0)
    elif way == "lost":
        sessions.hear(1, (), 30.0)
    else:
        sessions.bring(1, finished(1, "eve"), 1.0)
        judge_all(sessions, 1.0, {1: "wrong"})
        assert (sessions.take_answers(), commit(sessions)) == ([(1, Refused("wrong", "", (1,)))], [])
    assert (sessions.games[1].place, sessions.wanted(1.0)) == (Place.WAITING, 4 * len(sessions.tabs) - 1)
    enter(sessions, 0.0, "10.0.0.1", eve=4)
    sessions.hear(4, [1], 31.0)
    for tab in (4, 3):
        sessions.tabs[tab].heard_s = 31.0
        assert sessions.hand(tab, 31.0) == []
    sessions.tabs[2].heard_s = 31.0
    assert [record.uid for record, _ in sessions.hand(2, 31.0)] == [1]


def test_a_dropped_game_goes_on_on_the_same_terms_and_what_became_of_it_counts_for_who_dropped_it():
    counts, other = GatewayCounts(), Terms(9, 50)
    sessions = enter(Sessions(TICKETS, PATIENCE, counts), ann=1, bob=2)
    sessions.adopted("r:1", [GameRecord(1), GameRecord(2)], 0.0)
    sessions.hand(1, 0.0, terms=TERMS)
    sessions.leave(1, 1.0, for_good=True)
    assert (sessions.dropped_terms({9}), sessions.hand(2, 1.0, terms=other)) == ([], []), "he has no such version"
    assert sessions.dropped_terms({TERMS.version, 9}) == [TERMS]
    (first, mark), _ = sessions.hand(2, 1.0, terms=TERMS, again=True)
    assert TICKETS.read(mark, first.uid, "bob").terms == TERMS
    sessions.bring(2, TabGame(1, mark, b"\1\0", b"", b"", b"", b""), 2.0)
    ((_, contributor, batch),) = sessions.batches(lambda _: 1, 2.0)
    assert (batch[0].terms, batch[0].luck) == (TERMS, TICKETS.luck(GameRecord(1)))
    sessions.judged(contributor, batch, GamesVerdict({1: (-1.0, 1.0)}), 2.0)
    fresh = counts.hand_outs.take_fresh()
    assert (fresh["ann"].missed_lost, fresh["bob"].lost, fresh["bob"].missed_lost) == (1, 1, 0)
    (event,) = sessions.to_commit("r:1", 9, 7)
    assert event.luck == batch[0].luck
    sessions.leave(2, 3.0, for_good=True)
    enter(sessions, 3.0, cid=3)
    sessions.expire(3.0 + PATIENCE.late_s)
    sessions.hear(3, (), 3.0 + PATIENCE.late_s)
    assert len(sessions.hand(3, 3.0 + PATIENCE.late_s, terms=other)) == 1, "once nobody keeps its version, on other terms"


def test_luck_is_the_same_at_every_hand_out_and_foreseen_by_nobody() -> None:
    lucks = [TICKETS.luck(GameRecord(uid)) for uid in range(1, 2000)]
    assert len(set(lucks)) == len(lucks)
    assert all(0 < luck < 2**52 for luck in lucks)
    assert lucks == [Tickets(b"secret", b"r 1").luck(GameRecord(uid)) for uid in range(1, 2000)]
    assert lucks[0] != Tickets(b"another", b"r 1").luck(GameRecord(1))
    assert (TICKETS.luck(GameRecord(1, b"\1\0")), TICKETS.luck(GameRecord(MATCH_UIDS))) == (0, 0), "they were begun elsewhere"


def test_games_that_nobody_here_may_have_again_keep_no_others_away():
    sessions = opened(games=3, eve=1)
    sessions.hand(1, 0.0)
    sessions.leave(1, 1.0, for_good=True)
    enter(sessions, 2.0, eve=2)
    assert (sessions.hand(2, 2.0), sessions.wanted(2.0)) == ([], 3), "a little fewer: it dropped three"
    sessions.adopted("r:1", [GameRecord(9)], 2.0)
    assert [record.uid for record, _ in sessions.hand(2, 2.0)] == [9]


def test_who_throws_games_away_gets_fewer_at_once_whatever_his_name():
    counts = GatewayCounts()
    sessions = Sessions(TICKETS, PATIENCE, counts)
    taken = []
    for number in range(1, 6):
        enter(sessions, 0.0, "10.0.0.1", 512, **{f"eve{number}": number})
        sessions.adopted("r:1", [GameRecord(number * 1000 + place) for place in range(512)], 0.0)
        taken.append(len(sessions.hand(number, 0.0)))
        sessions.leave(number, 0.0, for_good=True)
    assert taken[0] == 512
    assert max(taken[1:]) <= 5
    fresh = counts.hand_outs.take_fresh()
    assert fresh["eve1"] == HandOuts(512, 0, 512)
    assert fresh["@10.0.0.1"].dropped == pytest.approx(fresh["@10.0.0.1"].handed, rel=0.3)
    assert not counts.hand_outs.take_fresh()
    enter(sessions, 0.0, "10.0.0.2", 512, ann=9)
    assert len(sessions.hand(9, 0.0)) == 512


def test_what_waits_takes_so_many_bytes_of_each_and_of_all():
    counts = GatewayCounts(stock=Stock(100))
    sessions = enter(Sessions(TICKETS, PATIENCE, counts, longest=60), ann=1, bob=2)
    sessions.bring(1, finished(1, "ann", actions=bytes(61)), 0.0)
    sessions.bring(1, finished(2, "ann", actions=bytes(60)), 0.0)
    sessions.bring(1, finished(2, "ann", actions=bytes(60)), 0.0)
    sessions.bring(2, finished(3, "bob", actions=bytes(60)), 0.0)
    sessions.bring(2, finished(4, "ann", actions=bytes(9)), 0.0)
    assert [(tab, answer.reason, answer.uids) for tab, answer in sessions.take_answers() if isinstance(answer, Refused)] == [
        (1, "it has 61 bytes, more than any game of this run can have", (1,)),
        (2, FULL, (3,)),
        (2, NOT_YOURS, (4,)),
    ]
    assert sessions.claims.keys() == {(2, "ann")}, "strangers leave no trace"
    assert counts.stock.bytes == {"ann": 60, "": 60}
    sessions.adopted("r:1", [GameRecord(2)], 1.0)
    judge_all(sessions, 1.0)
    assert commit(sessions) == [2]
    assert counts.stock.bytes == {}
    sessions.bring(2, finished(3, "bob", actions=bytes(60)), 1.0)
    sessions.expire(99.0)
    assert counts.stock.bytes == {}
    sessions.adopted("r:1", [GameRecord(5)], 99.0)
    sessions.bring(1, finished(5, "ann"), 99.0)
    judge_all(sessions, 99.0, {5: "wrong"})
    assert counts.stock.bytes == {}
    sessions.bring(1, finished(5, "ann"), 99.0)
    sessions.bring(2, finished(5, "bob"), 99.0)
    sessions.lost("r:1", 99.0)
    assert counts.stock.bytes == {"ann": 2, "": 2}, "who came too late leaves nothing either"
    sessions.end()
    assert counts.stock.bytes == {}


def test_one_contributor_and_one_address_have_bounds_of_their_own():
    stock = Stock(2**40)
    ann, eve = ("ann", "@10.0.0.1"), ("eve", "@10.0.0.1")
    assert stock.put(1, ann, BYTES_EACH)
    assert not stock.put(2, ann, 1)
    assert all(stock.put(number, (f"e{number}", "@10.0.0.1"), BYTES_EACH) for number in range(3, 2 + BYTES_ADDRESS // BYTES_EACH))
    assert not stock.put(9, eve, 1)
    assert stock.put(9, ("eve",), 1)
    stock.drop(1)
    assert stock.put(2, ann, 1)


class Gateways(RuleBasedStateMachine):
    """ContributorStore, honest and not, tabs that come and go, leases that are lost: each game counts once, for who had its ticket."""

    seats = st.integers(1, 4)
    uids = st.integers(1, 12)

    def __init__(self) -> None:
        super().__init__()
        self.sessions = Sessions(TICKETS, PATIENCE)
        self.now, self.leases, self.next_uid = 0.0, 1, 1
        self.pool: list[int] = []
        self.finished: list[int] = []
        self.handed: set[tuple[int, str]] = set()
        self.lease = "r:1"
        self.numbers = itertools.count(1)
        self.seated: dict[int, int] = {}  # seat -> number of the tab on it
        for seat in (1, 2, 3):
            self.enter(seat, 4)
        self.adopt(3)

    @rule(seat=seats, room=st.integers(0, 4))
    def enter(self, seat: int, room: int) -> None:
        if seat not in self.seated:
            self.seated[seat] = tab = next(self.numbers)
            self.sessions.enter(tab, f"c{seat % 3}", self.now)
            self.sessions.tabs[tab].room = room

    @rule(seat=seats, for_good=st.booleans())
    def leave(self, seat: int, for_good: bool) -> None:
        self.sessions.leave(self.seated.pop(seat, 0), self.now, for_good=for_good)

    @rule(count=st.integers(0, 3))
    def adopt(self, count: int) -> None:
        fresh = [self.pool.pop(0) if self.pool else self.open() for _ in range(min(count, self.sessions.wanted(self.now)))]
        self.sessions.adopted(self.lease, [GameRecord(uid) for uid in fresh], self.now)

    def open(self) -> int:
        self.next_uid += 1
        return self.next_uid - 1

    @rule()
    def adopt_named(self) -> None:
        found = [uid for uid in self.sessions.claimed() if uid in self.pool]
        self.pool = [uid for uid in self.pool if uid not in found]
        self.sessions.adopted(self.lease, [GameRecord(uid) for uid in found], self.now)

    @rule(seat=seats)
    def hand(self, seat: int) -> None:
        if tab := self.seated.get(seat):
            contributor = self.sessions.tabs[tab].contributor
            self.handed |= {(record.uid, contributor) for record, _ in self.sessions.hand(tab, self.now)}

    @rule(seat=seats, uid=uids, honest=st.booleans())
    def bring(self, seat: int, uid: int, honest: bool) -> None:
        if tab := self.seated.get(seat):
            contributor = self.sessions.tabs[tab].contributor
            his = sorted(handed for handed, who in self.handed if who == contributor)
            known = honest and bool(his)
            self.sessions.bring(tab, finished(his[uid % len(his)] if known else uid, contributor if known else "liar"), self.now)

    @rule(seat=seats, playing=st.lists(uids, max_size=3))
    def hear(self, seat: int, playing: list[int]) -> None:
        if tab := self.seated.get(seat):
            self.sessions.hear(tab, playing, self.now)

    @rule(refuse=st.booleans())
    def judge(self, refuse: bool) -> None:
        judge_all(self.sessions, self.now, dict.fromkeys(range(13), "no") if refuse else None)

    @rule()
    def commit(self) -> None:
        for event in self.sessions.to_commit(self.lease, 2, 0):
            assert (event.record.uid, event.worker.removeprefix("browser:")) in self.handed
        self.finished += commit(self.sessions, self.lease)

    @rule()
    def lose(self) -> None:
        self.pool = sorted(self.sessions.games) + self.pool
        self.sessions.lost(self.lease, self.now)
        self.leases += 1
        self.lease = f"r:{self.leases}"

    @rule(seconds=st.integers(1, 60))
    def wait(self, seconds: int) -> None:
        self.now += seconds
        self.sessions.expire(self.now)

    @invariant()
    def nothing_is_lost_and_nothing_counts_twice(self) -> None:
        assert len(set(self.finished)) == len(self.finished)
        assert sorted([*self.finished, *self.pool, *self.sessions.games]) == list(range(1, self.next_uid))

    @invariant()
    def tabs_and_games_agree(self) -> None:
        told: dict[int, set[int]] = {tab: set() for tab in self.sessions.tabs}
        for uid, game in self.sessions.games.items():
            if game.place is Place.PLAYING and game.tab in told:
                told[game.tab].add(uid)
        for (uid, _), claim in self.sessions.claims.items():
            if claim.brought is None and claim.tab in told:
                told[claim.tab].add(uid)
        assert {tab: known.plays for tab, known in self.sessions.tabs.items()} == told
        waiting: Any = {uid for uid, game in self.sessions.games.items() if game.place is Place.WAITING}
        assert waiting == set(self.sessions._waiting)
        assert sum(self.sessions._claimed.values()) == len(self.sessions.claims)

    @invariant()
    def what_waits_is_what_takes_room(self) -> None:
        games = {(uid, game.contributor): game.brought for uid, game in self.sessions.games.items()}
        claims = {place: claim.brought for place, claim in self.sessions.claims.items()}
        waiting = [brought for brought in (games | claims).values() if brought]
        assert self.sessions._stock.bytes[""] == sum(len(brought.actions) for brought in waiting)


TestGateways = Gateways.TestCase
TestGateways.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
