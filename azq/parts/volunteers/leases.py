"""The leases of a gateway: self-play's hand out games for a slice, a match's until its result; all that comes back is judged.

A part of the gateway's event loop; calls of ledger, contributors and judge run in threads and are awaited.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from azq import logs
from azq.actor.lease import RECORDS_PER_CALL, HeldLease
from azq.clock import now_ms
from azq.config import RunSections
from azq.errors import AzqError, BrokerError, ConfigError, EvaluationTimeout, LeaseLost, WireError
from azq.games.files import GameFiles
from azq.ledger.types import Directive, Effort, Lease
from azq.parts.volunteers.handouts import GamesBatch, GamesVerdict, MatchOrder
from azq.parts.volunteers.hub import Backing, MatchLease, RunHub, TabLease, tab_search
from azq.parts.volunteers.matches import TabMatch, deal_match
from azq.wire.codec import encode
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, SampleEvent

IDLE_S = 0.5
CLOSING_SLICES = 2  # slices after which a lease ends although tabs still play
MATCH_TRIES = 4  # attempts of a match, at whichever worker
NO_LIMIT = 1 << 30  # of attempts that were no fault of the job

InThread = Callable[..., Awaitable[Any]]
log = logs.get(__name__)


@dataclass(eq=False)
class Leases:
    """The leases of a gateway; `_deliver` sends a run's tabs what waits for them."""

    _backing: Backing
    _stopping: threading.Event
    _clock: Callable[[], float]
    _in_thread: InThread
    _deliver: Callable[[RunHub], None]
    _patience_s: float  # that a match waits for tabs that play matches, and for its networks
    _judging: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "judge"))

    def close(self) -> None:
        """Waits for no judgement."""
        self._judging.shutdown(wait=False)

    def _held(self, lease: Lease) -> HeldLease:
        return HeldLease(self._backing.ledger, lease, should_stop=self._stopping.is_set, clock=self._clock, wait=threading.Event().wait)

    # -- self-play

    async def keep(self, hub: RunHub, lease: Lease, sections: RunSections, ended: Callable[[], None]) -> None:
        """A lease on games from its claim to its end; `ended` is called once it hands out no more."""
        tab_lease, job, began_s = TabLease(lease, self._held(lease), tab_search(sections)), lease.job, self._clock()
        slice_s = job.slice_s or hub.sections.volunteers.slice_s
        hub.leases.append(tab_lease)
        log.info("lease_begins", job=job.job_id, attempt=lease.attempt)
        reason = "released"
        try:
            while tab_lease.held.directive is not Directive.RELEASE and hub.open:
                age_s = self._clock() - began_s
                if not tab_lease.closing and (age_s >= slice_s or tab_lease.held.directive is Directive.STALL):
                    tab_lease.closing = True
                    ended()
                if tab_lease.closing and (not hub.sessions.held(job.job_id) or age_s >= CLOSING_SLICES * slice_s):
                    break
                rings = hub.notifier.rings
                await self._step(hub, tab_lease)
                await hub.notifier.after(rings, min(IDLE_S, lease.lease_s / 8))
            await self._in_thread(tab_lease.held.release, ())
        except (LeaseLost, BrokerError) as error:
            reason = str(error)
        finally:
            if not tab_lease.closing:
                ended()
            hub.leases.remove(tab_lease)
            hub.sessions.lost(job.job_id, self._clock())
            log.info("lease_ends", job=job.job_id, reason=reason)

    async def _step(self, hub: RunHub, tab_lease: TabLease) -> None:
        """Commits accepted games, adopts as many as tabs have room for, renews the lease. Raises as `HeldLease`."""
        sessions, job = hub.sessions, tab_lease.lease.job.job_id
        takes = hub.open_lease is tab_lease
        if takes and (named := sessions.claimed()[:RECORDS_PER_CALL]):
            sessions.adopted(job, await self._in_thread(tab_lease.held.adopt_named, named), self._clock())
        events = sessions.to_commit(job, RECORDS_PER_CALL, now_ms())
        wanted = min(RECORDS_PER_CALL, sessions.wanted(self._clock())) if takes and hub.network is not None else 0
        if events or wanted:
            records, totals = await self._in_thread(self._commit, tab_lease.held, events, wanted)
            sessions.committed(events, totals)
            hub.newest.extend(events)
            sessions.adopted(job, records, self._clock())
        await self._renew(tab_lease)
        self._deliver(hub)

    async def _renew(self, tab_lease: TabLease) -> None:
        if self._clock() >= tab_lease.renew_s:
            await self._in_thread(tab_lease.held.journal, ())
            tab_lease.renew_s = self._clock() + tab_lease.lease.lease_s / 4

    def _commit(self, held: HeldLease, events: list[SampleEvent], wanted: int) -> tuple[list[GameRecord], Any]:
        """In a thread: the one atomic step, and the contributors' totals after it."""
        simulations = sum(sum(memoryview(event.record.simulations).cast("H")) for event in events)
        held.done = Effort(held.done.simulations + simulations)
        records = held.replace(events, wanted)
        return records, self._credit(events)

    def _credit(self, events: list[SampleEvent]) -> Mapping[str, Mapping[str, int]]:
        """In a thread: the contributors' totals with these games; games count also without them."""
        try:
            return self._backing.contributors.credit(events) if events else {}
        except AzqError as error:
            log.warning("not_credited", games=len(events), reason=str(error))
            return {}

    # -- matches

    async def referee(self, hub: RunHub, lease: Lease, ended: Callable[[], None]) -> None:
        """A match from its claim to its result; one that tabs do not finish goes back to the queue, whole."""
        job, reason = lease.job.job_id, "released"
        try:
            match = await self._in_thread(self._dealt, hub, lease)
            match_lease = hub.matches[job] = MatchLease(lease, self._held(lease), match.search, match=match)
            hub.sessions.adopted(job, match.records, self._clock())
            log.info("match_begins", job=job, attempt=lease.attempt, games=len(match.games))
            reason = await self._play(hub, match_lease)
        except (LeaseLost, BrokerError) as error:
            reason = str(error)
        except AzqError as error:
            reason = str(error)
            await self._give_back(lease, reason, 1 if isinstance(error, (WireError, ConfigError)) else MATCH_TRIES)
        finally:
            ended()
            hub.matches.pop(job, None)
            hub.sessions.lost(job, self._clock())
            log.info("match_ends", job=job, reason=reason)

    def _dealt(self, hub: RunHub, lease: Lease) -> TabMatch:
        """In a thread: the match of a job."""
        run = hub.sections.run
        if Kind.EVAL not in hub.sections.volunteers.kinds:
            raise ConfigError(f"run {hub.record.run} lets tabs play no matches; add eval to volunteers.kinds, or give the job another tag")
        return deal_match(lease.job, hub.sections, GameFiles().load(run.game, run.params), hub.network.version if hub.network else 0)

    async def _play(self, hub: RunHub, match_lease: MatchLease) -> str:
        """Until all games count, or the run takes the job back. Raises as `HeldLease`, `EvaluationTimeout` where tabs bring no games."""
        job, accepted, moved_s = match_lease.lease.job.job_id, 0, self._clock()
        while match_lease.held.directive is not Directive.RELEASE and hub.open:
            if not match_lease.networks:
                match_lease.networks = await self._in_thread(self._networks, hub, match_lease.match.order)
            events = hub.sessions.to_commit(job, len(match_lease.match.games), now_ms())
            if len(events) == len(match_lease.match.games):
                return await self._end(hub, match_lease, events)
            if len(events) != accepted:
                accepted, moved_s = len(events), self._clock()
            able = match_lease.networks and any(tab.match_room for tab in hub.sessions.tabs.values())
            if self._clock() - moved_s >= (hub.sections.volunteers.slice_s if able else self._patience_s):
                raise EvaluationTimeout(f"tabs brought {accepted} of {len(match_lease.match.games)} games of the match, then no more")
            rings = hub.notifier.rings
            await self._renew(match_lease)
            self._deliver(hub)
            await hub.notifier.after(rings, min(IDLE_S, match_lease.lease.lease_s / 8))
        if match_lease.held.directive is Directive.RELEASE:
            await self._in_thread(match_lease.held.release, ())
        else:
            await self._give_back(match_lease.lease, "the gateway stopped, or its run wants no tabs any more", NO_LIMIT)
        return "released"

    def _networks(self, hub: RunHub, order: MatchOrder) -> Any:
        """In a thread: the messages about both networks; none while one of them is missing."""
        updates = [self._backing.networks.find(hub.record, hub.sections, version) for version in order.versions]
        return tuple(updates) if all(updates) else ()

    async def _end(self, hub: RunHub, match_lease: MatchLease, events: list[SampleEvent]) -> str:
        """Commits the result under the lease, then answers the tabs whose games it is made of."""
        result = match_lease.match.result(events)
        await self._in_thread(match_lease.held.complete, encode(result))
        teaches_nothing = [msgspec.structs.replace(event, record=GameRecord(event.record.uid)) for event in events]
        hub.sessions.committed(events, await self._in_thread(self._credit, teaches_nothing))
        self._deliver(hub)
        return f"{result.first} - {result.second}: {result.wins} won, {result.draws} drawn, {result.losses} lost"

    async def _give_back(self, lease: Lease, reason: str, tries: int) -> None:
        try:
            await self._in_thread(lambda: self._backing.ledger.fail(lease, reason, max_attempts=tries))
        except (LeaseLost, BrokerError) as error:
            log.warning("job_dropped", job=lease.job.job_id, attempt=lease.attempt, reason=str(error))

    # -- judgement

    async def judge(self, hub: RunHub) -> None:
        """Has the finished games of a run judged, for as long as its hub is open."""
        while hub.open:
            rings = hub.notifier.rings
            for job, contributor, games in hub.sessions.batches(self._backing.judge.batch_games, self._clock()):
                if (match := hub.matches.get(job)) is not None:
                    batch = GamesBatch(hub.record, match.search, contributor, games, match.match.order)
                else:
                    search = next((lease.search for lease in hub.leases if lease.lease.job.job_id == job), tab_search(hub.sections))
                    batch = GamesBatch(hub.record, search, contributor, games)
                await self._verdict(hub, batch)
            await hub.notifier.after(rings, IDLE_S)

    async def _verdict(self, hub: RunHub, batch: GamesBatch) -> None:
        try:
            verdict = await asyncio.get_running_loop().run_in_executor(self._judging, self._backing.judge.judge, batch)
        except AzqError as error:
            log.warning("not_judged", run=hub.record.run, contributor=batch.contributor, games=len(batch.games), reason=str(error))
            verdict = GamesVerdict()
        hub.sessions.judged(batch.contributor, batch.games, verdict, self._clock())
        hub.notifier.ring()
