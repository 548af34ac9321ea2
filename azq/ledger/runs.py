"""Runs on the control plane: created, looked at, changed, counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from azq.errors import StateConflict
from azq.ledger.records import check_run_name, max_waiting, per_version
from azq.ledger.scripts import LEARNING, Argument, ScriptClient, fields_of, run_snapshot, run_view, text_of
from azq.ledger.types import LedgerCounts, LedgerLoad, RequestKey, RunSnapshot, RunState, RunView
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.connect import agree_on_schema, translate
from azq.wire.messages import RunRecord

RUNNING = RunState.RUNNING.encode()


class LedgerRuns(ScriptClient):
    """The ledger's methods about runs."""

    def create_run(self, record: RunRecord) -> RunView:
        """A new run, running at once. Raises `StateConflict` when the name is taken, `ConfigError` when it is none, `SchemaMismatch`."""
        return self.create_run_once(record, None)[0]

    def create_run_once(self, record: RunRecord, once: RequestKey | None) -> tuple[RunView, bool]:
        """A new run, or what the first request under this key created, and whether it is that. Raises also `KeyReused`."""
        check_run_name(record.run)
        agree_on_schema(self.client)
        self.pin(record.run, once)
        self._list(record.run)
        fingerprint = once.fingerprint if once else ""
        word, *answer = self.call("runs.create", record.run, fingerprint, *_stored(record), record.created_ms, once=once)
        self._list(record.run)  # again: one of that name may just have been deleted, or the broker rolled back
        if word == "conflict":
            raise StateConflict(f"run {record.run} exists already; resume it, or choose another name")
        return (_new_run(fields_of(answer[0])), True) if word == "replayed" else (self.run(record.run), False)

    def _list(self, name: str) -> None:
        """Names a run among all runs."""
        with translate(self.client):
            self.client.sadd(keys.RUNS, name)

    def first_run(self, name: str, once: RequestKey | None) -> RunView | None:
        """The run that was created under this key, as it was then; None where none was. Raises `KeyReused`."""
        first = self.read_once(name, once)
        return None if first is None else _new_run(first)

    def run(self, name: str) -> RunView:
        """One run. Raises `NotFound` naming the runs there are."""
        now_ms, values = self._read_run(name)
        return run_view(now_ms, values)

    def runs(self, names: Sequence[str] | None = None) -> list[RunView]:
        """All runs, by name, or those of some names; one whose record does not decode is said and left out, so that it stops no other."""
        return self.read_all("runs.read", lambda _, answer: run_view(int(answer[0]), fields_of(answer[1])), names)

    def stirring(self, names: Sequence[str]) -> list[str]:
        """Those of some runs that run, or have jobs queued or leased: two plain commands a run, in one round trip."""
        looked = zip(names, self._states_and_jobs(names), strict=True)
        return [name for name, (state, jobs) in looked if state == RUNNING or (state and jobs)]

    def snapshots(self) -> list[RunSnapshot]:
        """All runs with their counts and jobs, by name, in one round trip; one whose record does not decode is said and left out."""
        return self.read_all("runs.snapshot", run_snapshot)

    def mend(self, names: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Makes the keys of all runs, or of some, again what the rules leave there; what was wrong with which. For the daemon."""
        agree_on_schema(self.client, upgrade=True)  # a broker that was rolled back may have forgotten the mark
        repairs = self.read_all("mend.mend", lambda name, wrong: (name, sorted(map(text_of, wrong))), names)
        return {name: wrong for name, wrong in repairs if wrong}

    def snapshot(self, name: str) -> RunSnapshot:
        """One run with its counts and jobs, in one round trip. Raises `NotFound` naming the runs there are."""
        _, *answer = self.call("runs.snapshot", name)
        return run_snapshot(name, answer)

    def set_run_state(self, name: str, state: RunState, reason: str = "", seen_ms: int = 0) -> RunView:
        """Changes a run's state, unless that is not the one set at `seen_ms` (0: any) any more; setting the one it has changes nothing.

        running <-> paused, either -> finished or failed, those -> running. Raises `NotFound` and `StateConflict`.
        """
        word, *answer = self.call("runs.set_state", name, state.value, reason, seen_ms)
        if word == "conflict":
            since = " by now" if seen_ms else ""
            raise StateConflict(f"run {name} is {text_of(answer[0])}{since} and cannot become {state.value}; resume it first")
        self._list(name)  # a broker that was rolled back may have forgotten it
        return self.run(name)

    def update_run(self, record: RunRecord) -> RunView:
        """Replaces what is kept of a run: settings, end, folder. Raises `NotFound`."""
        self.call("runs.replace_record", record.run, b"", *_stored(record))
        return self.run(record.run)

    def update_run_until(self, name: str, until: dict[str, float]) -> RunView:
        """Sets a run's end and leaves the rest of its record, whatever changes that meanwhile. Raises `NotFound`."""
        while True:
            now_ms, values = self._read_run(name)
            changed = msgspec.structs.replace(run_view(now_ms, values).record, until=dict(until))
            word, *_ = self.call("runs.replace_record", name, values["record"], *_stored(changed))
            if word == "ok":
                return self.run(name)

    def delete_run(self, name: str) -> None:
        """Forgets a run and all that is kept of it here; one that is not there is passed over. Raises `StateConflict` while it works."""
        word, *answer = self.call("runs.delete", name)
        if word == "conflict":
            raise _still_at_work(name, *map(text_of, answer))
        with translate(self.client):
            self.client.srem(keys.RUNS, name)
            if self.client.exists(keys.run(name)):  # created again meanwhile
                self.client.sadd(keys.RUNS, name)

    def load(self) -> LedgerLoad:
        """How much there is to do."""
        rows = self._states_and_jobs(self.names())
        return LedgerLoad(sum(state == RUNNING for state, _ in rows), sum(jobs for _, jobs in rows))

    def counts(self, run: str) -> LedgerCounts:
        """All counts at one moment. Raises `NotFound`."""
        return LedgerCounts(*map(int, self.call("runs.counts", run)[1:]))

    def _states_and_jobs(self, names: Sequence[str]) -> list[tuple[bytes | None, int]]:
        with translate(self.client), self.client.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.hget(keys.run(name), "state")
                pipe.zcard(keys.jobs(name))
            answers = pipe.execute()
        return list(zip(answers[::2], answers[1::2], strict=True))

    def _read_run(self, name: str) -> tuple[int, dict[str, bytes]]:
        _, now_ms, fields = self.call("runs.read", name)
        return int(now_ms), fields_of(fields)


def _still_at_work(run: str, state: str, owner: str = "") -> StateConflict:
    """The error for a run that cannot be deleted: it is running, or a worker or its learner has not ended."""
    if state == LEARNING:
        return StateConflict(f"{owner} still learns run {run}; stop it, then delete the run")
    if owner:
        return StateConflict(f"{owner} still holds a job of run {run}; it gives it back within seconds, then delete the run")
    return StateConflict(f"run {run} is {state}; pause or finish it, then delete it")


def _stored(record: RunRecord) -> tuple[Argument, ...]:
    """A run's record, and what scripts read of its settings."""
    return encode(record), max_waiting(record), per_version(record)


def _new_run(values: Mapping[str, bytes]) -> RunView:
    return run_view(int(values["changed_ms"]), values)
