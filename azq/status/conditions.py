"""What an operator must know: who dies again and again, what was mended in a ledger, why a run has no games; all in these words alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from azq.bus.base import Bus, order
from azq.ledger.types import LedgerCounts
from azq.wire import keys
from azq.wire.codec import decode, encode, skip_unreadable
from azq.wire.kinds import Kind
from azq.wire.machines import ProcessDeath
from azq.wire.messages import RunEvent

KEPT = 64  # newest deaths of a whole fleet
FEWEST = 3  # deaths of one process, within
WITHIN_S = 600.0
EVENTS_READ = 100  # newest of a run


@dataclass(frozen=True, slots=True)
class Died:
    """A death and its moment, by the broker's clock, which never goes back in a stream."""

    at_ms: int
    process: ProcessDeath


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """One process that is started and dies again and again."""

    name: str
    host: str
    run: str  # empty: it works for all
    times: int
    over_s: float  # between the first death and the last
    cause: str  # of the last whose cause is known
    log: str

    def __str__(self) -> str:
        span = f"{self.over_s / 60:.0f} min" if self.over_s >= 90 else f"{self.over_s:.0f} s"
        where = f"log {self.host}:{self.log}" if self.log else f"its manager on {self.host} has the log"
        return f"{self.name} died {self.times} times in {span}: {self.cause or 'its end was not seen'}; {where}"


def publish_death(bus: Bus, death: ProcessDeath) -> None:
    """Publishes a death to all readers of conditions. Raises `BrokerError`."""
    bus.publish(keys.DEATHS, encode(death), max_length=KEPT)


class DeathLog:
    """The newest deaths, of which each look reads only those that came since the last."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._read = "0"
        self._known: deque[Died] = deque(maxlen=KEPT)

    def read(self) -> tuple[Died, ...]:
        """The newest deaths, oldest first. Raises `BrokerError`."""
        for entry in self._bus.after(keys.DEATHS, self._read):
            self._read = entry.id
            with skip_unreadable(entry.place):
                self._known.append(Died(order(entry.id)[0], decode(entry.frame, ProcessDeath)))
        return tuple(self._known)


def read_deaths(bus: Bus) -> tuple[Died, ...]:
    """The newest deaths, oldest first. Raises `BrokerError`."""
    return DeathLog(bus).read()


def last_failure(bus: Bus, run: str) -> str:
    """Which job of self-play failed last, and why, by a run's newest events; empty where none did. Raises `BrokerError`."""
    for entry in bus.newest(keys.events(run), EVENTS_READ):
        with skip_unreadable(entry.place):
            about = decode(entry.frame, RunEvent).about
            if about.get("kind") == Kind.SELFPLAY and about.get("error"):
                return f"job {run}:{about['job']} failed, {about['error']}"
    return ""


def crash_loops(deaths: Iterable[Died], now_ms: int, run: str = "") -> tuple[CrashLoop, ...]:
    """Who died `FEWEST` times within `WITHIN_S`, of those that work for a run (empty: all there are), by name. Pure."""
    values: dict[tuple[str, str, str], list[Died]] = {}
    for died in deaths:
        process = died.process
        if died.at_ms >= now_ms - WITHIN_S * 1000 and (not run or process.run in ("", run)):
            values.setdefault((process.name, process.host, process.run), []).append(died)
    return tuple(_loop_of(*who, group) for who, group in sorted(values.items()) if len(group) >= FEWEST)


def _loop_of(name: str, host: str, run: str, deaths: Sequence[Died]) -> CrashLoop:
    last = next((died.process for died in reversed(deaths) if died.process.cause), deaths[-1].process)
    return CrashLoop(name, host, run, len(deaths), (deaths[-1].at_ms - deaths[0].at_ms) / 1000, last.cause, last.log)


_DECODER = msgspec.msgpack.Decoder(dict[str, int])


def read_mended(frame: bytes | None) -> Mapping[str, int]:
    """Faults of the last hour -> when they were mended last, from what the run's `keys.mended` holds."""
    return _DECODER.decode(frame) if frame else {}


def mendings(bus: Bus, run: str, now_ms: int) -> list[str]:
    """The same as an operator reads it. Raises `BrokerError`."""
    return mended_texts(read_mended(bus.get(keys.mended(run))), now_ms)


def mended_texts(mended: Mapping[str, int], now_ms: int) -> list[str]:
    """A sentence a fault."""
    return [
        f"self-play failed in the ledger: {what}; the daemon mended it {max(0, now_ms - at_ms) / 60_000:.0f} min ago. "
        "A machine wrote what azq does not: `azq fleet list` names those let in, `azq fleet revoke` sends one away"
        for what, at_ms in sorted(mended.items())
    ]


PATIENCE_S = 15.0  # a run at work that evaluates nothing has started all there is by then
EMPTY_GAMES, EMPTY_AFTER_S = 50, 60.0  # without a sample; before that come games that a random opening ended


def no_games(counts: LedgerCounts, active_s: float, samples: int | None, failed: str, abandoned: str, *, evaluating: bool) -> str:
    """A sentence with the last reason that is known; empty where games are finished, or searched.

    `samples`: of the learner, None where none has spoken; `failed`: which job of self-play failed last, and why; `abandoned`: why one of
    the abandoned games was.
    """
    if counts.inserted >= EMPTY_GAMES and samples == 0 and active_s >= EMPTY_AFTER_S:
        return f"{counts.inserted} games and no sample: they are over before any player moves; `azq games check` tries the rules"
    if counts.finished:
        return ""
    if counts.abandoned:
        return f"no game was finished, {counts.abandoned} were abandoned because {abandoned or 'of an unknown cause'}"
    if failed:
        return f"no game was finished: {failed}"
    if evaluating or active_s < PATIENCE_S:
        return ""
    if not counts.opened:
        return f"no game was begun in {active_s:.0f} s: no worker has taken a job of self-play"
    if not counts.evaluations:
        return f"no game was finished in {active_s:.0f} s: no position was evaluated, for want of weights or of an inference worker"
    return f"no game was finished in {active_s:.0f} s; {counts.open} are open, and nothing is evaluated now"
