"""The tabs that play a run's games at a gateway, what came back, and the answers. No I/O and no clock: times come in.

A game is here under a lease (`HeldGame`), or a contributor claims it without one (`GameClaim`): its lease was lost, or an earlier gateway
handed it out. Claims wait until the game is adopted again by name, or for too long. A game belongs to the contributor who shows its ticket:
tickets name the contributor and the record that play goes on from.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from azq.parts.volunteers.handouts import (
    NO_TERMS,
    GameClaim,
    GamesVerdict,
    GatewayCounts,
    HeldGame,
    Place,
    Returned,
    Tab,
    Terms,
    Tickets,
    keys_of,
)
from azq.parts.volunteers.reputation import HandOuts, outcome
from azq.wire.arrays import size_of
from azq.wire.messages import BROWSER_PREFIX, GameRecord, SampleEvent
from azq.wire.tabs import MAX_TAB_BYTES, Accepted, Refused, TabGame, is_match

NOT_YOURS = "it was not handed to you"
LATE = "others play it, or it is finished"
FULL = "more of your finished games wait here than there is room for"
DONE_KEPT = 100_000  # verdicts remembered for tabs that lost the answer
MATCH_HELD_S = 300.0  # that a tab may keep a match's game, however alive it is
CLAIMS_EACH = 1024  # games without a lease that a contributor may claim
RETURN_S = 3.0  # in which tabs come back to a new gateway: longer than they pause between two tries at first


@dataclass(frozen=True, slots=True)
class TabPatience:
    """How long a silent tab keeps its games, a claim waits for its game, and finished games wait for a full batch."""

    silent_s: float
    late_s: float
    batch_s: float = 5.0


class Sessions:
    """The tabs and games of a run at a gateway."""

    def __init__(self, tickets: Tickets, patience: TabPatience, counts: GatewayCounts | None = None, longest: int = MAX_TAB_BYTES) -> None:
        self.tabs: dict[int, Tab] = {}
        self.games: dict[int, HeldGame] = {}
        self.claims: dict[tuple[int, str], GameClaim] = {}  # by game and contributor
        counts = counts or GatewayCounts()
        self.counts, self._hand_outs, self._stock = counts.games, counts.hand_outs, counts.stock
        self._longest = longest  # bytes of a finished game
        self._barred: OrderedDict[int, set[str]] = OrderedDict()  # keys that do not get a game again, by the game
        self.tickets = tickets
        self._patience = patience
        self._waiting: dict[int, None] = {}  # games at WAITING, first come first served
        self._matches_waiting: dict[int, None] = {}  # those of matches
        self._claimed: Counter[str] = Counter()  # claims of each contributor
        self._done: OrderedDict[int, str] = OrderedDict()  # whose games were committed
        self._answers: list[tuple[int, Accepted | Refused]] = []
        self._others_from_s: float | None = None  # until then only what is claimed is adopted; None: nothing was adopted or claimed yet

    # -- tabs

    def enter(self, tab: int, contributor: str, now_s: float, address: str = "") -> None:
        """A tab is there; it gets games once it has `room`."""
        self.tabs[tab] = Tab(contributor, now_s, keys_of(contributor, address))

    def leave(self, tab: int, now_s: float, *, for_good: bool = False) -> None:
        """A tab's connection is over; unless `for_good`, its games wait a while for its return."""
        gone = self.tabs.pop(tab, Tab("", now_s, ()))
        for uid in gone.plays & self.games.keys():
            if for_good:
                self._wait(uid, now_s)
            else:
                self.games[uid].since_s = now_s
        for uid in gone.plays - self.games.keys() if for_good else ():
            self._drop_claim(uid, gone.contributor)

    def hear(self, tab: int, playing: Iterable[int], now_s: float) -> None:
        """A tab lives and plays these games, of which it may have had some before it, or the gateway, came back."""
        player = self.tabs[tab]
        player.heard_s = now_s
        for uid in (player.plays & self.games.keys()).difference(playing):
            if now_s - self.games[uid].since_s >= self._patience.silent_s:  # it lost the game, or never got it
                self._wait(uid, now_s)
        for uid in playing:
            game = self.games.get(uid)
            if game is None:
                if uid not in self._done:
                    self._claim(uid, player.contributor, GameClaim(tab, now_s))
            elif game.place is Place.WAITING:
                if self._room(player, now_s, match=is_match(uid)) and not self._is_barred(uid, player):
                    self._give(uid, player.contributor, tab, now_s)
            elif game.place is Place.PLAYING and game.contributor == player.contributor and game.tab != tab:
                self._give(uid, player.contributor, tab, now_s)

    def dropped_terms(self, versions: Collection[int]) -> list[Terms]:
        """The terms of these versions, of games that were dropped: their course is to stay."""
        terms = dict.fromkeys(self.games[uid].terms for uid in self._waiting)
        return [dropped for dropped in terms if dropped != NO_TERMS and dropped.version in versions]

    def hand(
        self, tab: int, now_s: float, match: str = "", terms: Terms = NO_TERMS, *, again: bool = False
    ) -> list[tuple[GameRecord, bytes]]:
        """Games for a tab that has room, with tickets on these terms; only such as others had on them, `again`; of a match by its lease."""
        player, handed = self.tabs[tab], []
        if match:
            waiting = (uid for uid in self._matches_waiting if self.games[uid].lease == match)
        else:
            those = (terms,) if again else (terms, NO_TERMS)
            waiting = (uid for uid in self._waiting if self.games[uid].terms in those and not self._is_barred(uid, player))
        for uid in list(islice(waiting, self._room(player, now_s, match=bool(match)))):
            self._give(uid, player.contributor, tab, now_s)
            self.games[uid].terms, record = terms, self.games[uid].record
            handed.append((record, self.tickets.issue(uid, player.contributor, record, terms)))
        if handed:
            self._hand_outs.add(player.keys, HandOuts(handed=len(handed)))
        return handed

    def bring(self, tab: int, brought: TabGame, now_s: float) -> None:
        """A tab has finished a game, or repeats it."""
        uid, contributor, keys = brought.uid, self.tabs[tab].contributor, self.tabs[tab].keys
        game, shown = self.games.get(uid), self.tickets.read(brought.ticket, uid, contributor)
        if uid in self._done:
            self._answer_done(tab, uid, contributor)
        elif shown is None or (game is not None and not shown.fits(game.record)):
            self._refuse(tab, uid, NOT_YOURS)
        elif (size := size_of(brought.record)) > self._longest:
            self._refuse(tab, uid, f"it has {size} bytes, more than any game of this run can have")
        elif not self._stock.put((self, uid, contributor), keys, size):
            self._refuse(tab, uid, FULL, "late")
        elif game is None:
            self._claim(uid, contributor, GameClaim(tab, now_s, brought))
        elif game.place in (Place.WAITING, Place.PLAYING):
            if game.contributor not in ("", contributor):
                self._refuse(game.tab, uid, LATE, "late")
            self._return(uid, contributor, tab, brought, shown.terms, now_s)
        elif game.contributor == contributor:
            self.counts["duplicate"] += 1
            game.tab = tab
        else:
            self._stock.drop((self, uid, contributor))
            self._refuse(tab, uid, LATE, "late")

    def expire(self, now_s: float) -> None:
        """Games of tabs that were silent, or kept a match waiting, for too long go to others, later on other terms; old claims end."""
        for uid, game in self.games.items():
            if game.place is Place.WAITING and now_s - game.since_s >= self._patience.late_s:
                game.terms, game.missed_by = NO_TERMS, ()
            if game.place is not Place.PLAYING:
                continue
            tab = self.tabs.get(game.tab)
            slow = is_match(uid) and now_s - game.since_s >= MATCH_HELD_S
            if slow and tab is not None:
                tab.slow = True
            if slow or now_s - max(game.since_s, tab.heard_s if tab else 0.0) >= self._patience.silent_s:
                self._wait(uid, now_s)
        for (uid, contributor), claim in tuple(self.claims.items()):
            if now_s - claim.since_s >= self._patience.late_s:
                self._drop_claim(uid, contributor)
                self._refuse(claim.tab, uid, LATE, "late")

    def take_answers(self) -> list[tuple[int, Accepted | Refused]]:
        """The answers to tabs since the last call."""
        answers, self._answers = self._answers, []
        return answers

    def end(self) -> None:
        """The run has no tabs any more: what waits of theirs takes no room."""
        for uid, contributor in (*self.claims, *((uid, game.contributor) for uid, game in self.games.items())):
            self._stock.drop((self, uid, contributor))

    # -- leases

    @property
    def waiting(self) -> bool:
        """Whether games wait for a tab."""
        return bool(self._waiting or self._matches_waiting)

    def wanted(self, now_s: float) -> int:
        """Games that the tabs have room for, besides those that wait; none while tabs of an earlier gateway come back to claim theirs."""
        if self._others_from_s is not None and now_s < self._others_from_s:
            return 0
        tabs = self.tabs.values()
        playable = [uid for uid in self._waiting if uid not in self._barred or not all(self._is_barred(uid, tab) for tab in tabs)]
        return max(0, sum(self._room(tab, now_s) for tab in tabs) - len(playable))

    def claimed(self) -> list[int]:
        """Games to be adopted by name."""
        return list(dict.fromkeys(uid for uid, _ in self.claims if not is_match(uid)))

    def adopted(self, lease: str, records: Sequence[GameRecord], now_s: float) -> None:
        """Games came under a lease; those with a valid claim go to its contributor."""
        if records and self._others_from_s is None:
            self._others_from_s = now_s
        for record in records:
            uid = record.uid
            self.games[uid] = HeldGame(lease, record, since_s=now_s)
            self._shelf(uid)[uid] = None
            for contributor, claim in self._claims_on(uid):
                self._take_claim(uid, contributor)
                if claim.tab not in self.tabs:
                    self._stock.drop((self, uid, contributor))
                elif claim.brought is not None:
                    self.bring(claim.tab, claim.brought, now_s)
                elif self.games[uid].place is Place.WAITING and not self._is_barred(uid, self.tabs[claim.tab]):
                    self._give(uid, contributor, claim.tab, now_s)

    def lost(self, lease: str, now_s: float) -> None:
        """A lease is over: contributors who play its games, or have finished them, claim them from now on."""
        for uid in [uid for uid, game in self.games.items() if game.lease == lease]:
            game = self._forget(uid)
            if game.contributor:
                self._claim(uid, game.contributor, GameClaim(game.tab, now_s, game.brought))

    def held(self, lease: str) -> int:
        """How many games are under a lease."""
        return sum(game.lease == lease for game in self.games.values())

    def batches(self, batch_games: Callable[[str], int], now_s: float) -> Iterator[tuple[str, str, tuple[Returned, ...]]]:
        """Lease, contributor and finished games to be judged now, many together unless they wait too long; each is given out once."""
        returned: dict[tuple[str, str], list[HeldGame]] = {}
        for game in self.games.values():
            if game.place is Place.RETURNED:
                returned.setdefault((game.lease, game.contributor), []).append(game)
        for (lease, contributor), games in returned.items():
            size = batch_games(contributor)
            while len(games) >= size or (games and now_s - games[0].since_s >= self._patience.batch_s):
                batch, games = games[:size], games[size:]
                for game in batch:
                    game.place = Place.JUDGED
                yield lease, contributor, tuple(self._returned(game) for game in batch)

    def judged(self, contributor: str, batch: Collection[Returned], verdict: GamesVerdict, now_s: float) -> None:
        """A batch has its verdict: what counts waits to be committed, the rest is handed out again. Games in neither are judged again."""
        for returned in batch:
            uid = returned.record.uid
            game = self.games.get(uid)
            if game is None or game.place is not Place.JUDGED or game.contributor != contributor:
                continue  # its lease was lost meanwhile
            game.since_s = now_s
            if uid in verdict.returns:
                game.place, game.returns = Place.ACCEPTED, verdict.returns[uid]
                self._count(game)
            elif (reason := verdict.refused.get(uid)) is not None:
                self._refuse(game.tab, uid, reason)
                self._wait(uid, now_s)
            else:
                game.place = Place.RETURNED

    def to_commit(self, lease: str, most: int, finished_ms: int) -> list[SampleEvent]:
        """Accepted games of a lease, at most so many, as the learner gets them."""
        accepted = (game for game in self.games.values() if game.lease == lease and game.place is Place.ACCEPTED)
        return [self._event(game, finished_ms) for game in islice(accepted, most)]

    def committed(self, events: Sequence[SampleEvent], totals: Mapping[str, Mapping[str, int]]) -> None:
        """Games are closed, their samples handed over; `totals` are each contributor's with these among them."""
        uids: dict[tuple[int, str], list[int]] = {}
        for event in events:
            game = self._forget(event.record.uid)
            self._stock.drop((self, event.record.uid, game.contributor))
            self._done[event.record.uid] = game.contributor
            uids.setdefault((game.tab, game.contributor), []).append(event.record.uid)
        while len(self._done) > DONE_KEPT:
            self._done.popitem(last=False)
        self.counts["accepted"] += len(events)
        self._answers += [(tab, Accepted(tuple(theirs), dict(totals.get(who, {})))) for (tab, who), theirs in uids.items()]

    # -- steps

    def _give(self, uid: int, contributor: str, tab: int, now_s: float) -> None:
        """A game is played in a tab from now on, wherever it was before."""
        game = self._release(uid)
        game.place, game.contributor, game.tab, game.since_s = Place.PLAYING, contributor, tab, now_s
        game.keys = self.tabs[tab].keys
        self.tabs[tab].plays.add(uid)

    def _return(self, uid: int, contributor: str, tab: int, brought: TabGame, terms: Terms, now_s: float) -> None:
        game = self._release(uid)
        game.place, game.contributor, game.tab, game.since_s = Place.RETURNED, contributor, tab, now_s
        game.missed_by = tuple(key for key in game.missed_by if key not in self.tabs[tab].keys) if terms == game.terms else ()
        game.keys, game.brought, game.terms = self.tabs[tab].keys, brought, terms
        self._hand_outs.add(game.keys, HandOuts(brought=1))

    def _count(self, game: HeldGame) -> None:
        """How a game ended, of who brought it, and of who dropped it before."""
        if not is_match(game.record.uid):
            self._hand_outs.add(game.keys, outcome(game.returns))
            self._hand_outs.add(game.missed_by, outcome(game.returns, missed=True))

    def _wait(self, uid: int, now_s: float) -> None:
        """A game waits for another contributor: the last one dropped it, or brought it otherwise than ordered."""
        game = self._release(uid)
        if game.place is Place.PLAYING:
            self._hand_outs.add(game.keys, HandOuts(dropped=1))
            game.missed_by = tuple(dict.fromkeys((*game.missed_by, *game.keys)))
        if not is_match(uid):  # those come out the same in every tab
            self._barred.setdefault(uid, set()).update(game.keys)
            while len(self._barred) > DONE_KEPT:
                self._barred.popitem(last=False)
        self._stock.drop((self, uid, game.contributor))
        game.place, game.contributor, game.tab, game.brought, game.since_s = Place.WAITING, "", 0, None, now_s
        self._shelf(uid)[uid] = None

    def _release(self, uid: int) -> HeldGame:
        """A game, which neither waits nor is played in a tab any more."""
        game = self.games[uid]
        self._shelf(uid).pop(uid, None)
        if (tab := self.tabs.get(game.tab)) is not None:
            tab.plays.discard(uid)
        return game

    def _forget(self, uid: int) -> HeldGame:
        game = self._release(uid)
        del self.games[uid]
        return game

    def _shelf(self, uid: int) -> dict[int, None]:
        return self._matches_waiting if is_match(uid) else self._waiting

    def _room(self, tab: Tab, now_s: float, *, match: bool = False) -> int:
        """How many more games a tab gets; a silent one none."""
        if now_s - tab.heard_s >= self._patience.silent_s or (match and tab.slow):
            return 0
        if match:
            return max(0, self._hand_outs.most(tab.keys, tab.match_room) - sum(map(is_match, tab.plays)))
        return max(0, self._hand_outs.most(tab.keys, tab.room) - len(tab.plays))

    def _is_barred(self, uid: int, tab: Tab) -> bool:
        return not self._barred.get(uid, set()).isdisjoint(tab.keys)

    def _claims_on(self, uid: int) -> list[tuple[str, GameClaim]]:
        """Finished games first."""
        claims = [(contributor, claim) for (other, contributor), claim in self.claims.items() if other == uid]
        return sorted(claims, key=lambda claim: claim[1].brought is None)

    def _claim(self, uid: int, contributor: str, claim: GameClaim) -> None:
        if self._others_from_s is None:
            self._others_from_s = claim.since_s + RETURN_S
        before = self.claims.get((uid, contributor))
        if before is None and self._claimed[contributor] >= CLAIMS_EACH:
            self._stock.drop((self, uid, contributor))
            self._refuse(claim.tab, uid, "you bring too many games of an earlier time", "late")
            return
        if before is not None:  # it waits as long as before, unless it was finished only now
            self._take_claim(uid, contributor)
            if before.brought or not claim.brought:
                claim.brought, claim.since_s = before.brought, before.since_s
        self._claimed[contributor] += 1
        self.claims[uid, contributor] = claim
        if claim.brought is None and claim.tab in self.tabs:
            self.tabs[claim.tab].plays.add(uid)

    def _drop_claim(self, uid: int, contributor: str) -> None:
        self._stock.drop((self, uid, contributor))
        self._take_claim(uid, contributor)

    def _take_claim(self, uid: int, contributor: str) -> None:
        claim = self.claims.pop((uid, contributor), None)
        if claim is None:
            return
        self._claimed[contributor] -= 1
        if claim.tab in self.tabs:
            self.tabs[claim.tab].plays.discard(uid)

    def _answer_done(self, tab: int, uid: int, contributor: str) -> None:
        if self._done[uid] == contributor:
            self.counts["duplicate"] += 1
            self._answers.append((tab, Accepted((uid,))))
        else:
            self._refuse(tab, uid, LATE, "late")

    def _refuse(self, tab: int, uid: int, reason: str, count: str = "refused") -> None:
        self.counts[count] += 1
        self._answers.append((tab, Refused(reason, "", (uid,))))

    def _returned(self, game: HeldGame) -> Returned:
        assert game.brought is not None
        return Returned(game.brought.record, game.record, game.terms, self.tickets.luck(game.record))

    def _event(self, game: HeldGame, finished_ms: int) -> SampleEvent:
        assert game.brought is not None
        worker = f"{BROWSER_PREFIX}{game.contributor}"
        return SampleEvent(game.brought.record, game.returns, worker, finished_ms, self.tickets.luck(game.record))
