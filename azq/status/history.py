"""What charts are drawn from: a point a run every few seconds, kept in the control plane; rates by its counters, columns for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby

import msgspec

from azq.bus.base import Bus
from azq.bus.catalog import EventFollower
from azq.bus.promotions import serving
from azq.errors import WireError
from azq.ledger.types import LedgerCounts, RunState
from azq.phases import CPU, OF_ROLE, WALL, merged, of_heartbeat, part
from azq.status.stages import UNSEEN, RunFirsts
from azq.status.state import SILENT, Desired, Observed, ObservedRun
from azq.status.workers import NetworkUse, lag_of, network_uses
from azq.wire import keys
from azq.wire.codec import decode, encode, skip_unreadable
from azq.wire.messages import Heartbeat, HistoryPoint, LearnerStatus, RunRecord, WeightEvent

LENGTH = 34_560  # points kept of a run: two days at one every five seconds
RESUMED = 12  # newest points that a daemon begins with: a minute
FIRST_WEIGHTS = 16  # among the oldest so many are those that were trained first: fewer are published before
TRAINED = ("loss_policy", "loss_value", "step")  # known only once the learner has made a step
COLUMNS = tuple(name for name in HistoryPoint.__struct_fields__ if name not in ("at_ms", "spent", "cores", "active_ms"))
SPENT = "spent_"  # columns of shares of time: this, the role, the phase


@dataclass(frozen=True, slots=True)
class History:
    """N moments, oldest first; a column's entry is None where the figure was not known."""

    every_ms: int  # width of a bucket; moments farther apart than a few of them have a gap between them
    at_ms: list[int]  # (N,)
    columns: dict[str, list[float | None]]  # (N,) each, by figure


class Recorder:
    """Appends a point to the history of every running run, each `every_s` seconds."""

    def __init__(self, bus: Bus, every_s: float) -> None:
        self._bus = bus
        self._every_ms = every_s * 1000
        self._last_ms = 0
        self._points: dict[str, list[HistoryPoint]] = {}  # the newest of each running run, oldest first

    def note(self, desired: Desired, observed: Observed, now_ms: int) -> None:
        """Writes the points that are due. Raises `BrokerError`."""
        if abs(now_ms - self._last_ms) < self._every_ms:  # a clock that was set back must not silence it
            return
        self._last_ms = now_ms
        running = [run.name for run in desired.runs if run.state is RunState.RUNNING]
        self._points = {run: self._points.get(run) or self._written(run) for run in running}
        points = list(points_of(desired, observed, now_ms, self._points))
        self._bus.publish_each([(keys.history(run), encode(point)) for run, point in points], max_length=LENGTH)
        for run, point in points:
            since_ms = point.active_ms - KEPT_MS
            self._points[run] = [old for old in self._points[run] if since_ms <= old.active_ms <= point.active_ms] + [point]

    def _written(self, run: str) -> list[HistoryPoint]:
        """What this daemon, or another, wrote last of a run."""
        results = [_try(entry.frame) for entry in self._bus.newest(keys.history(run), RESUMED)]
        return [point for point in reversed(results) if point is not None and point.active_ms]


def points_of(
    desired: Desired, observed: Observed, now_ms: int, before: Mapping[str, Sequence[HistoryPoint]] = {}
) -> Iterator[tuple[str, HistoryPoint]]:
    """The figures of every running run; `before` are its newest points, oldest first. Pure."""
    bound: dict[str, list[Heartbeat]] = {}
    learners: dict[str, list[Heartbeat]] = {}
    for beat in observed.workers:  # what a learner does for its run is in its status, all but where its time goes
        (learners if beat.run and beat.role == "learner" else bound).setdefault(beat.run, []).append(beat)
    shared = bound.get("", [])
    # Once: hundreds of runs may share a thousand workers.
    networks, lag, spent, cores = network_uses(observed.workers), lag_of(shared), spent_by(shared), cores_by(shared)
    for run in desired.runs:
        seen = observed.runs.get(run.name)
        if run.state is RunState.RUNNING and seen is not None:
            team = [*shared, *bound[run.name]] if run.name in bound else None
            point = _point(run.name, seen, lag_of(team) if team else lag, now_ms)
            pace = rates(before.get(run.name, ()), point, networks.get(run.name))
            learner = learners.get(run.name, [])
            own = (spent_by(team) if team else spent) | spent_by(learner)
            own_cores = (cores_by(team) if team else cores) | cores_by(learner)
            yield run.name, msgspec.structs.replace(point, **asdict(pace), spent=own, cores=own_cores)


def read(bus: Bus, run: str, since_ms: int) -> list[HistoryPoint]:
    """The points of a run since then, oldest first; what does not decode is left out. Raises `BrokerError`."""
    # Stream ids carry the broker's clock, as the points do: the broker looks up where to begin.
    points = (_try(entry.frame) for entry in bus.after(keys.history(run), f"{max(0, since_ms - 1)}-0", count=LENGTH))
    return [point for point in points if point is not None and point.at_ms >= since_ms]


class Firsts(EventFollower[HistoryPoint]):
    """When a run's first game and its first step were seen: its history, read no further than to there."""

    def __init__(self, control: Bus, run: str) -> None:
        super().__init__(control, keys.history(run), HistoryPoint, "history")
        self._run = run
        self._seen: RunFirsts | None = None  # None: not read yet

    def read(self) -> RunFirsts:
        """What is known now. Raises `BrokerError`."""
        if self._seen is None:
            self._seen = self._of_weights() if self._control.length(self.stream) >= LENGTH else UNSEEN
        while not self._seen.step_ms and self.refresh():
            pass
        return self._seen

    def add(self, event: HistoryPoint) -> None:
        before = self._seen or UNSEEN
        seen = event.games or event.samples or event.step
        self._seen = RunFirsts(before.game_ms or (event.at_ms if seen else 0), before.step_ms or (event.at_ms if event.step else 0))

    def _of_weights(self) -> RunFirsts:
        """Where the beginning of the history is gone: when the first weights were there that had been trained."""
        for entry in self._control.after(keys.weights(self._run), "0", count=FIRST_WEIGHTS):
            with skip_unreadable(entry.place):
                if (event := decode(entry.frame, WeightEvent)).step:
                    return RunFirsts(step_ms=event.published_ms)
        return UNSEEN


class FirstsOfRuns:
    """Those of every run that was asked for; safe to share between threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Firsts]] = {}  # by run, with when it was created

    def of(self, bus: Bus, record: RunRecord) -> RunFirsts:
        """What is known of a run now. Raises `BrokerError`."""
        created_ms, firsts = self._known.get(record.run, (-1, None))
        if firsts is None or created_ms != record.created_ms:  # two threads that look at once read the same points
            firsts = Firsts(bus, record.run)
            self._known[record.run] = record.created_ms, firsts
        return firsts.read()


def downsample(points: Sequence[HistoryPoint], span_ms: int, buckets: int) -> History:
    """Means over at most about `buckets` equal parts of a span; empty parts are left out. Pure.

    Parts begin at multiples of their width, so that a chart that is asked for again later does not flicker.
    """
    width = max(1, -(-span_ms // buckets))
    ordered = sorted(points, key=lambda point: point.at_ms)
    groups = [list(group) for _, group in groupby(ordered, lambda point: point.at_ms // width)]
    spent = sorted({name for point in points for name in point.spent})
    return History(
        every_ms=width,
        at_ms=[round(sum(point.at_ms for point in group) / len(group)) for group in groups],
        columns={name: [_mean(group, name) for group in groups] for name in COLUMNS}
        | {SPENT + name: [_mean_spent(group, name) for group in groups] for name in spent},
    )


def _point(run: str, seen: ObservedRun, lag: Callable[[str, int], float], now_ms: int) -> HistoryPoint:
    learner = seen.learned or SILENT
    version = max(seen.weight_version, learner.weight_version)
    return msgspec.structs.replace(
        counters(seen.active_ms, seen.counts, learner),
        at_ms=now_ms,
        policy_lag=lag(run, serving(seen.promotions) or version),
        loss_policy=learner.loss_policy,
        loss_value=learner.loss_value,
        open_games=seen.counts.open,
        weight_version=version,
    )


def _mean(group: Sequence[HistoryPoint], name: str) -> float | None:
    values = [getattr(point, name) for point in group if point.step or name not in TRAINED]
    return sum(values) / len(values) if values else None


def _mean_spent(group: Sequence[HistoryPoint], name: str) -> float | None:
    role = name.partition("_")[0] + "_"
    values = [point.spent.get(name, 0.0) for point in group if any(other.startswith(role) for other in point.spent)]
    return sum(values) / len(values) if values else None


def _try(frame: bytes) -> HistoryPoint | None:
    try:
        return decode(frame, HistoryPoint)
    except WireError:
        return None


def spent_by(beats: Sequence[Heartbeat]) -> dict[str, float]:
    """Shares of wall time as `<role>_<phase>`, means over the processes of a role that said anything; {} where none did."""
    values: dict[str, float] = {}
    for role in OF_ROLE:
        shares = [figures for beat in beats if beat.role == role and (figures := of_heartbeat(beat.rates))]
        values |= {f"{role}_{phase}": share for phase, share in part(merged(shares), WALL).items()}
    return values


def cores_by(beats: Sequence[Heartbeat]) -> dict[str, float]:
    """CPU cores in use by role, of the processes that say where their time goes."""
    figures = {role: [of_heartbeat(beat.rates) for beat in beats if beat.role == role] for role in OF_ROLE}
    return {role: round(sum(part(merged(rows), CPU).values()), 4) for role, rows in figures.items() if any(rows)}


WINDOW_MS = 15_000  # of active time, at least
KEPT_MS = 60_000  # so long ago a counter may have moved last, so that games which take long are no zeros in between

COUNTERS = {
    "games_per_s": "games",
    "simulations_per_s": "simulations",
    "evaluations_per_s": "evaluations",
    "samples_per_s": "trained",
    "steps_per_s": "step",
}


@dataclass(frozen=True, slots=True)
class Pace:
    """What a run does in a second; means are 0 where nothing was evaluated."""

    games_per_s: float = 0.0
    simulations_per_s: float = 0.0  # of self-play, as the next
    evaluations_per_s: float = 0.0
    samples_per_s: float = 0.0  # trained on
    steps_per_s: float = 0.0
    mean_batch: float = 0.0  # leaves of a forward pass for this run
    network_busy: float = 0.0  # share of wall time in them, mean over the inference workers that serve it


STILL = Pace()


def counters(active_ms: int, counts: LedgerCounts, learner: LearnerStatus) -> HistoryPoint:
    """A run's counters at a moment; of a point's fields those alone."""
    return HistoryPoint(
        0,
        active_ms=active_ms,
        games=counts.finished,
        simulations=counts.simulations,
        evaluations=counts.evaluations,
        requests=counts.requests,
        samples=learner.samples_inserted,
        trained=learner.samples_consumed,
        step=learner.step,
    )


def rates(points: Sequence[HistoryPoint], now: HistoryPoint, network: NetworkUse | None = None) -> Pace:
    """The rates at `now` by the counters of points before it, oldest first; with none, since the run's beginning.

    A counter that fell, as a learner's does that goes on from a checkpoint, counts from there. `network` is what inference workers say of
    the run; without it a batch is a request.
    """
    per_s = {name: _per_s(points, now, counter) for name, counter in COUNTERS.items()}
    if network is None:
        requests_per_s = _per_s(points, now, "requests")
        return Pace(**per_s, mean_batch=per_s["evaluations_per_s"] / requests_per_s if requests_per_s else 0.0)
    return Pace(**per_s, **asdict(network))


def latest(point: HistoryPoint | None, now: HistoryPoint, network: NetworkUse | None = None) -> Pace:
    """The rates as the newest point has them; where it is old, since then."""
    if point is None or not point.active_ms or now.active_ms - point.active_ms >= WINDOW_MS:
        return rates([point] if point and point.active_ms else [], now, network)
    return Pace(**{name: getattr(point, name) for name in Pace.__slots__})


def _per_s(points: Sequence[HistoryPoint], now: HistoryPoint, counter: str) -> float:
    count, base = getattr(now, counter), None if points else HistoryPoint(0)
    for point in reversed(points):
        if point.active_ms > now.active_ms or getattr(point, counter) > count:
            break
        base = point
        if now.active_ms - point.active_ms >= WINDOW_MS and getattr(point, counter) < count:
            break
    if base is None or base.active_ms == now.active_ms:
        return 0.0
    grown: float = count - getattr(base, counter)
    return 1000.0 * grown / (now.active_ms - base.active_ms)
