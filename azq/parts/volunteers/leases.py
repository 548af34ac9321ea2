"""What a gateway does with its leases: self-play's hand out games for a slice, a match's until its result; all that comes back is judged.

A part of the gateway's event loop; what talks to the ledger, to contributors' records or to the judge runs in threads and is awaited.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from azq import logs
from azq.actor.lease import RECORDS_PER_CALL, HeldLease
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import AzqError, BrokerError, ConfigError, EvaluationTimeout, LeaseLost, WireError
from azq.games.files import GameFiles
from azq.ledger.types import Directive, Effort, Lease
from azq.parts.volunteers.backing import Backing, GamesBatch, GamesVerdict, MatchOrder, Returned
from azq.parts.volunteers.matches import TabMatch, deal_match
from azq.parts.volunteers.rooms import Kept, KeptMatch, Room, tab_search
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, SampleEvent

IDLE_S = 0.5
CLOSING_SLICES = 2  # slices after which a lease ends although tabs still play
MATCH_TRIES = 4  # attempts of a match, whoever had them
NO_LIMIT = 1 << 30  # of attempts that were no fault of the job

InThread = Callable[..., Awaitable[Any]]
log = logs.get(__name__)


class Leases:
    """The leases of one gateway; `deliver` tells a run's tabs what there is to tell."""

    def __init__(
        self,
        backing: Backing,
        stopping: threading.Event,
        clock: Callable[[], float],
        in_thread: InThread,
        deliver: Callable[[Room], None],
        patience_s: float,
    ) -> None:
        self._backing = backing
        self._stopping = stopping
        self._clock = clock
        self._in_thread = in_thread
        self._deliver = deliver
        self._patience_s = patience_s  # that a match waits for tabs that play matches, and for its networks
        self._judging = ThreadPoolExecutor(1, "judge")

    def close(self) -> None:
        """Waits for no judgement."""
        self._judging.shutdown(wait=False)

    def _held(self, lease: Lease) -> HeldLease:
        return HeldLease(self._backing.ledger, lease, should_stop=self._stopping.is_set, clock=self._clock, wait=threading.Event().wait)

    # -- self-play

    async def keep(self, room: Room, lease: Lease, sections: RunSections, ended: Callable[[], None]) -> None:
        """One lease on games from its claim to its end; `ended` is called once it hands out no more."""
        kept, job, began_s = Kept(lease, self._held(lease), tab_search(sections)), lease.job, self._clock()
        slice_s = job.slice_s or room.sections.volunteers.slice_s
        room.leases.append(kept)
        log.info("lease_begins", job=job.job_id, attempt=lease.attempt)
        reason = "released"
        try:
            while kept.held.directive is not Directive.RELEASE and room.open:
                age_s = self._clock() - began_s
                if not kept.closing and (age_s >= slice_s or kept.held.directive is Directive.STALL):
                    kept.closing = True
                    ended()
                if kept.closing and (not room.sessions.held(job.job_id) or age_s >= CLOSING_SLICES * slice_s):
                    break
                rung = room.bell.rung
                await self._step(room, kept)
                await room.bell.after(rung, min(IDLE_S, lease.lease_s / 8))
            await self._in_thread(kept.held.release, ())
        except (LeaseLost, BrokerError) as error:
            reason = str(error)
        finally:
            if not kept.closing:
                ended()
            room.leases.remove(kept)
            room.sessions.lost(job.job_id, self._clock())
            log.info("lease_ends", job=job.job_id, reason=reason)

    async def _step(self, room: Room, kept: Kept) -> None:
        """Commits what was accepted and adopts what tabs have room for; renews the lease in any case. Raises as `HeldLease`."""
        sessions, job = room.sessions, kept.lease.job.job_id
        takes = room.open_lease is kept
        if takes and (named := sessions.claimed()[:RECORDS_PER_CALL]):
            sessions.adopted(job, await self._in_thread(kept.held.adopt_named, named), self._clock())
        events = sessions.to_commit(job, RECORDS_PER_CALL, now_ms())
        wanted = min(RECORDS_PER_CALL, sessions.wanted(self._clock())) if takes and room.network is not None else 0
        if events or wanted:
            records, totals = await self._in_thread(self._commit, kept.held, events, wanted)
            sessions.committed(events, totals)
            room.newest.extend(events)
            sessions.adopted(job, records, self._clock())
        await self._renew(kept)
        self._deliver(room)

    async def _renew(self, kept: Kept) -> None:
        if self._clock() >= kept.renew_s:
            await self._in_thread(kept.held.journal, ())
            kept.renew_s = self._clock() + kept.lease.lease_s / 4

    def _commit(self, held: HeldLease, events: list[SampleEvent], wanted: int) -> tuple[list[GameRecord], Any]:
        """In a thread: the one atomic step, and the contributors' totals after it."""
        simulations = sum(sum(memoryview(event.record.simulations).cast("H")) for event in events)
        held.done = Effort(held.done.simulations + simulations)
        records = held.replace(events, wanted)
        return records, self._credit(events)

    def _credit(self, events: list[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """In a thread: the contributors' totals with these games; games count also where those cannot be told."""
        try:
            return self._backing.guests.credit(events) if events else {}
        except AzqError as error:
            log.warning("not_credited", games=len(events), reason=str(error))
            return {}

    # -- matches

    async def referee(self, room: Room, lease: Lease, ended: Callable[[], None]) -> None:
        """One match from its claim to its result; what tabs do not bring to its end goes back to the queue, whole."""
        job, reason = lease.job.job_id, "released"
        try:
            match = await self._in_thread(self._dealt, room, lease)
            kept = room.matches[job] = KeptMatch(lease, self._held(lease), match.search, match=match)
            room.sessions.adopted(job, match.records, self._clock())
            log.info("match_begins", job=job, attempt=lease.attempt, games=len(match.games))
            reason = await self._play(room, kept)
        except (LeaseLost, BrokerError) as error:
            reason = str(error)
        except AzqError as error:
            reason = str(error)
            await self._give_back(lease, reason, 1 if isinstance(error, (WireError, ConfigError)) else MATCH_TRIES)
        finally:
            ended()
            room.matches.pop(job, None)
            room.sessions.lost(job, self._clock())
            log.info("match_ends", job=job, reason=reason)

    def _dealt(self, room: Room, lease: Lease) -> TabMatch:
        """In a thread: the match of a job."""
        run = room.sections.run
        if Kind.EVAL not in room.sections.volunteers.kinds:
            raise ConfigError(f"run {room.record.run} lets tabs play no matches; add eval to volunteers.kinds, or give the job another tag")
        return deal_match(lease.job, room.sections, GameFiles().load(run.game, run.params), room.network.version if room.network else 0)

    async def _play(self, room: Room, kept: KeptMatch) -> str:
        """Until all games count, or the run takes the job back. Raises as `HeldLease`, `EvaluationTimeout` where nobody brings games."""
        job, accepted, moved_s = kept.lease.job.job_id, 0, self._clock()
        while kept.held.directive is not Directive.RELEASE and room.open:
            if not kept.networks:
                kept.networks = await self._in_thread(self._networks, room, kept.match.order)
            events = room.sessions.to_commit(job, len(kept.match.games), now_ms())
            if len(events) == len(kept.match.games):
                return await self._end(room, kept, events)
            if len(events) != accepted:
                accepted, moved_s = len(events), self._clock()
            able = kept.networks and any(tab.match_room for tab in room.sessions.tabs.values())
            if self._clock() - moved_s >= (room.sections.volunteers.slice_s if able else self._patience_s):
                raise EvaluationTimeout(f"tabs brought {accepted} of {len(kept.match.games)} games of the match, and no more of late")
            rung = room.bell.rung
            await self._renew(kept)
            self._deliver(room)
            await room.bell.after(rung, min(IDLE_S, kept.lease.lease_s / 8))
        if kept.held.directive is Directive.RELEASE:
            await self._in_thread(kept.held.release, ())
        else:
            await self._give_back(kept.lease, "the gateway stopped, or its run has no tabs any more", NO_LIMIT)
        return "released"

    def _networks(self, room: Room, order: MatchOrder) -> Any:
        """In a thread: what tabs are told of both networks; nothing while one of them cannot be had."""
        found = [self._backing.networks.find(room.record, room.sections, version) for version in order.versions]
        return tuple(found) if all(found) else ()

    async def _end(self, room: Room, kept: KeptMatch, events: list[SampleEvent]) -> str:
        """Commits the result under the lease, then tells everybody whose games it is made of."""
        result = kept.match.result(events)
        await self._in_thread(kept.held.complete, encode(result))
        teaches_nothing = [msgspec.structs.replace(event, record=GameRecord(event.record.uid)) for event in events]
        room.sessions.committed(events, await self._in_thread(self._credit, teaches_nothing))
        self._deliver(room)
        return f"{result.first} - {result.second}: {result.wins} won, {result.draws} drawn, {result.losses} lost"

    async def _give_back(self, lease: Lease, reason: str, tries: int) -> None:
        try:
            await self._in_thread(lambda: self._backing.ledger.fail(lease, reason, max_attempts=tries))
        except (LeaseLost, BrokerError) as error:
            log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(error))

    # -- judgement

    async def judge(self, room: Room) -> None:
        """Has the finished games of a run judged, for as long as it is here."""
        while room.open:
            rung = room.bell.rung
            for job, contributor, games in room.sessions.batches(self._backing.judge.batch_games, self._clock()):
                if (match := room.matches.get(job)) is not None:
                    batch = GamesBatch(room.record, match.search, contributor, games, match.match.order)
                else:
                    search = next((kept.search for kept in room.leases if kept.lease.job.job_id == job), tab_search(room.sections))
                    batch = GamesBatch(room.record, search, contributor, games)
                await self._verdict(room, batch, games)
            await room.bell.after(rung, IDLE_S)

    async def _verdict(self, room: Room, batch: GamesBatch, games: tuple[Returned, ...]) -> None:
        try:
            verdict = await asyncio.get_running_loop().run_in_executor(self._judging, self._backing.judge.judge, batch)
        except AzqError as error:
            log.warning("not_judged", run=room.record.run, contributor=batch.contributor, games=len(games), reason=str(error))
            verdict = GamesVerdict()
        room.sessions.judged(batch.contributor, games, verdict, self._clock())
        room.bell.ring()
