"""The slice engine's surroundings: a run with its in-memory ledger, whose calls may be disturbed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

from memory_broker import MemoryBus, MemoryLedger

from azq import games
from azq.actor import Arenas, SelfPlay, Slice, SliceEnd
from azq.config import RunConfig, RunSections, SearchConfig, SelfPlayConfig
from azq.ledger import Ledger
from azq.ledger.types import Lease
from azq.search.evaluator import UniformEvaluator
from azq.wire.kinds import Kind
from azq.wire.messages import Job, RunRecord, SampleEvent

GAME = games.load("tic_tac_toe")
RUN = "toe"


def sections(**selfplay: Any) -> RunSections:
    settings = {"games_in_flight": 8, "evaluator": "uniform", "journal_s": 0.01, **selfplay}
    return RunSections(
        run=RunConfig(game="tic_tac_toe", seed=5),
        search=SearchConfig(num_simulations=12, reuse_subtree=False),
        selfplay=SelfPlayConfig(**settings),
    )


class Table:
    """A run with its in-memory ledger; every call may be disturbed by `hook(name, call)`."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.ledger = MemoryLedger(self.bus)
        self.ledger.create_run(RunRecord(RUN, b"{}", {}, "", 0))
        self.events: list[SampleEvent] = []
        self.journals: list[int] = []
        self.hook: Callable[[str, Callable[[], Any]], Any] = lambda name, call: call()
        self.arenas = Arenas()

    def lease(self, games: int = 8, slice_s: float = 60.0, lease_s: float = 20.0, stall_s: float = 0.0) -> Lease:
        job = self.ledger.enqueue(Job("", RUN, Kind.SELFPLAY, "cpu", games=games, slice_s=slice_s, stall_s=stall_s))
        self.ledger.mark_published(job.job.job_id, 1)
        lease = self.ledger.claim(job.job.job_id, 1, "me", lease_s)
        assert lease is not None
        return lease

    def play(self, lease: Lease | None = None, evaluator: Any = None, **options: Any) -> SliceEnd:
        given = {name: options.pop(name) for name in ("made_ms", "patience_s") if name in options}
        part = Slice(lease or self.lease(), options.pop("settings", sections()), GAME, **given)
        options.setdefault("clock", ticking())
        ledger = cast(Ledger, self)  # in effect: every call goes on to one
        options.setdefault("wait", lambda s: None)
        return SelfPlay(ledger, part, evaluator or UniformEvaluator(9), self.arenas, **options).run()

    def balanced(self) -> bool:
        counts = self.ledger.counts(RUN)
        uids = [event.record.uid for event in self.events]
        assert len(uids) == len(set(uids)), "a game was committed twice"
        assert counts.finished == len(uids)
        return counts.opened == counts.finished + counts.open + counts.abandoned

    def all_in_the_pool(self) -> bool:
        """No lease holds a game: the next job adopts every open one and no new one."""
        before = self.ledger.counts(RUN)
        lease = self.lease()
        adopted = self.ledger.adopt(lease, before.open)
        self.ledger.release(lease, [])
        return self.balanced() and len(adopted) == before.open > 0 and self.ledger.counts(RUN).opened == before.opened

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.ledger, name)

        def call(lease: Lease, *arguments: Any) -> Any:
            def do() -> Any:
                answer = method(lease, *arguments)
                if name == "replace_games":
                    self.events += arguments[0]
                if name == "journal":
                    self.journals.append(len(arguments[0]))
                return answer

            return self.hook(name, do)

        return call


def after(calls: int) -> Callable[[], bool]:
    """False so many times, then True."""
    counter = itertools.count()
    return lambda: next(counter) >= calls


def ticking() -> Callable[[], float]:
    """A clock on which every look is 5 ms after the last, so that what a slice does by it is the same on any machine."""
    ticks = itertools.count()
    return lambda: 0.005 * next(ticks)
