"""A typed client of the REST interface: the same routes that curl uses, named after its resources, errors as azq's own.

Pages are followed; what creates something is sent under an idempotency key.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

from azq.arena.levels import Level
from azq.client.transport import BACKOFF, START, Transport, parse_events
from azq.errors import DaemonUnavailable, TooManyRequests, WeightsError, WireError
from azq.status.history import History
from azq.status.results import ArenaOut, MatchOut, StudyReport
from azq.status.schemas import AuditOut, EventOut, HealthOut, JobOut, MovesOut, PromotionOut, RunOut, WeightsOut
from azq.status.spending import RunCost
from azq.status.summary import LedgerStatus, RunStatus
from azq.status.workers import QueueStatus, WorkerStatus

SEARCH_S = 60.0  # that moves may take; the daemon gives up sooner
SILENCE_S = 30.0  # of an event stream; the daemon speaks every ten seconds

T = TypeVar("T")


class Client(Transport):
    """One daemon. Methods raise what the daemon refuses with, as azq's errors, and `DaemonUnavailable` where no daemon answers.

    Everything but `resume_run`, `revoke_job`, `roll_back_weights` and `unpin_weights` is repeated by itself when an answer is lost:
    creating requests carry an `Idempotency-Key`. Safe to share between threads.
    """

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- runs

    def runs(self, *, state: str | None = None, game: str | None = None) -> Iterator[RunOut]:
        """All runs, by name."""
        return self._pages("/v1/runs", RunOut, {"state": state, "game": game})

    def run(self, name: str) -> RunOut:
        """One run with its settings."""
        return self._get(f"/v1/runs/{_part(name)}", RunOut)

    def create_run(
        self,
        name: str,
        *,
        game: str | None = None,
        preset: str = "",
        sections: Mapping[str, Any] | None = None,
        until: Mapping[str, float] | None = None,
        directory: str = "",
    ) -> RunOut:
        """Creates a run, which starts at once; with `game` that game's preset is below its `sections`."""
        body = {"name": name, "preset": preset, "sections": dict(sections or {}), "until": dict(until or {}), "directory": directory}
        return self._create("/v1/runs", body if game is None else {**body, "game": game}, RunOut)

    def change_run(self, name: str, *, until: Mapping[str, float]) -> RunOut:
        """Gives a run other goals."""
        return _read(self.send("PATCH", f"/v1/runs/{_part(name)}", body={"until": dict(until)}), RunOut)

    def pause_run(self, name: str, reason: str = "") -> RunOut:
        return self._post(f"/v1/runs/{_part(name)}/pause", {"reason": reason}, RunOut)

    def resume_run(self, name: str, *, until: Mapping[str, float] | None = None) -> RunOut:
        """Goes on with a run that does not run, towards other goals where they are given."""
        body = {} if until is None else {"until": dict(until)}
        return self._post(f"/v1/runs/{_part(name)}/resume", body, RunOut, repeatable=False)

    def finish_run(self, name: str, reason: str = "") -> RunOut:
        return self._post(f"/v1/runs/{_part(name)}/finish", {"reason": reason}, RunOut)

    def delete_run(self, name: str) -> None:
        """Forgets a run that rests, and all that the control plane keeps of it; one that is not there is passed over."""
        self.send("DELETE", f"/v1/runs/{_part(name)}")

    def run_status(self, name: str) -> RunStatus:
        """Everything the live table shows."""
        return self._get(f"/v1/runs/{_part(name)}/status", RunStatus)

    def run_cost(self, name: str) -> RunCost:
        """What its machines cost so far, by component, and when it ends at its present pace."""
        return self._get(f"/v1/runs/{_part(name)}/cost", RunCost)

    def run_ledger(self, name: str) -> LedgerStatus:
        """The proof that no game was lost."""
        return self._get(f"/v1/runs/{_part(name)}/ledger", LedgerStatus)

    def arena(self, name: str, *, limit: int | None = None) -> ArenaOut:
        """The newest matches and grades, and the ratings."""
        return self._get(f"/v1/runs/{_part(name)}/matches", ArenaOut, limit=limit)

    def matches(self, name: str) -> Iterator[MatchOut]:
        """All matches there ever were, newest first."""
        for page in self._answers(f"/v1/runs/{_part(name)}/matches"):
            yield from _read(page, ArenaOut).matches

    def history(self, name: str, *, since_ms: int | None = None, points: int | None = None) -> History:
        """A run's figures over time, in columns."""
        return self._get(f"/v1/runs/{_part(name)}/history", History, since_ms=since_ms, points=points)

    # -- moves

    def moves(self, name: str, positions: Sequence[Mapping[str, Any]], **how: Any) -> MovesOut:
        """What the run's networks play in each position, `{"actions": [..]}` or `{"position": notation}`.

        `how` are the other members of the request: weights, num_simulations, temperature, or level; and seed.
        """
        body = {"positions": [dict(position) for position in positions], **{key: value for key, value in how.items() if value is not None}}
        return _read(self.send("POST", f"/v1/runs/{_part(name)}/moves", body=body, timeout_s=SEARCH_S), MovesOut)

    def levels(self, name: str) -> list[Level]:
        """The levels at which a run's networks can play, weakest first."""
        return self._get(f"/v1/runs/{_part(name)}/levels", list[Level])

    # -- weights

    def weights(self, name: str, *, limit: int | None = None) -> list[WeightsOut]:
        """The newest published weights, newest first."""
        return self._get(f"/v1/runs/{_part(name)}/weights", list[WeightsOut], limit=limit)

    def promote_weights(self, name: str, version: int, reason: str = "") -> PromotionOut:
        """Has self-play follow a version from now on."""
        return self._post(f"/v1/runs/{_part(name)}/weights/{version}/promote", {"reason": reason}, PromotionOut)

    def pin_weights(self, name: str, version: int, reason: str = "") -> PromotionOut:
        """Has self-play follow a version until it is unpinned."""
        return self._post(f"/v1/runs/{_part(name)}/weights/{version}/pin", {"reason": reason}, PromotionOut)

    def roll_back_weights(self, name: str, reason: str = "") -> PromotionOut:
        """Has self-play follow the version that served before."""
        return self._post(f"/v1/runs/{_part(name)}/weights/rollback", {"reason": reason}, PromotionOut, repeatable=False)

    def unpin_weights(self, name: str, reason: str = "") -> PromotionOut:
        """Has self-play follow the best version again, or the newest."""
        return self._post(f"/v1/runs/{_part(name)}/weights/unpin", {"reason": reason}, PromotionOut, repeatable=False)

    def read_weights(self, name: str, version: int | str = "latest") -> bytes:
        """A safetensors file, verified. Raises also `WeightsError` where what came is damaged."""
        answer = self.send("GET", f"/v1/runs/{_part(name)}/weights/{_part(str(version))}")
        if f'"{hashlib.sha256(answer.content).hexdigest()}"' != answer.headers.get("etag"):
            raise WeightsError(f"weights {version} of run {name} were damaged on their way; ask again")
        return bytes(answer.content)

    # -- jobs

    def jobs(
        self,
        *,
        run: str | None = None,
        active: bool = True,
        kind: str | None = None,
        tag: str | None = None,
        state: str | None = None,
        since_ms: int | None = None,
    ) -> Iterator[JobOut]:
        """Queued and leased jobs, and ended ones where they are asked for; by run, newest first."""
        wanted = {"run": run, "active": active, "kind": kind, "tag": tag, "state": state, "since": since_ms}
        return self._pages("/v1/jobs", JobOut, wanted)

    def job(self, job_id: str) -> JobOut:
        return self._get(f"/v1/jobs/{_part(job_id)}", JobOut)

    def enqueue(self, run: str, kind: str, **settings: Any) -> JobOut:
        """Enqueues a job; `settings` are the members of the request: tag, priority, games, slice_s, match, grade."""
        given = {name: value for name, value in settings.items() if value is not None}
        return self._create("/v1/jobs", {"run": run, "kind": kind, **given}, JobOut)

    def revoke_job(self, job_id: str) -> JobOut:
        """Takes a job back."""
        return self._post(f"/v1/jobs/{_part(job_id)}/revoke", None, JobOut, repeatable=False)

    # -- studies

    def tell_study(self, report: StudyReport) -> None:
        """Tells the daemon what a study found so far."""
        self.send("PUT", f"/v1/studies/{_part(report.study)}", body=report.model_dump(mode="json"))

    def study(self, name: str) -> StudyReport:
        """The newest report of a study."""
        return self._get(f"/v1/studies/{_part(name)}", StudyReport)

    # -- fleet and events

    def workers(
        self, *, role: str | None = None, host: str | None = None, tag: str | None = None, run: str | None = None
    ) -> Iterator[WorkerStatus]:
        """Processes whose heartbeat lives."""
        return self._pages("/v1/workers", WorkerStatus, {"role": role, "host": host, "tag": tag, "run": run})

    def queues(self) -> list[QueueStatus]:
        """What waits and runs in each queue, and the slots that live workers have."""
        return self._get("/v1/queues", list[QueueStatus])

    def ready(self) -> HealthOut:
        """The daemon, when it does useful work. Raises `DaemonUnavailable` while it does not; asks once."""
        return _read(self.send("GET", "/readyz", repeatable=False), HealthOut)

    def audit(self) -> Iterator[AuditOut]:
        """Who changed what, newest first."""
        return self._pages("/v1/audit", AuditOut, {})

    def events(self, run: str | None = None, *, after: str = "") -> Iterator[EventOut]:
        """What becomes of one run or of all, without end: a connection that broke is taken up again where it did.

        Raises `DaemonUnavailable` where there was none yet.
        """
        path = "/v1/events" if run is None else f"/v1/runs/{_part(run)}/events"
        failures, connected = 0, False
        while True:
            try:
                with self.stream(path, {"Last-Event-ID": after} if after else {}, silence_s=SILENCE_S) as response:
                    for event in parse_events(response.iter_lines()):
                        failures, connected = 0, True
                        after = event.id or after
                        if event.kind != START:
                            yield event
            except (DaemonUnavailable, TooManyRequests):
                if not connected:
                    raise
            failures += 1
            self._sleep(BACKOFF.pause_s(failures))

    # -- how

    def _get(self, path: str, kind: type[T], **params: Any) -> T:
        return _read(self.send("GET", path, params=params), kind)

    def _post(self, path: str, body: Any, kind: type[T], *, repeatable: bool = True) -> T:
        return _read(self.send("POST", path, body=body, repeatable=repeatable), kind)

    def _create(self, path: str, body: Any, kind: type[T]) -> T:
        return _read(self.send("POST", path, body=body, headers={"Idempotency-Key": str(uuid.uuid4())}), kind)

    def _pages(self, path: str, kind: type[T], params: Mapping[str, Any]) -> Iterator[T]:
        for answer in self._answers(path, params):
            yield from _read(answer, list[kind])  # type: ignore[valid-type]

    def _answers(self, path: str, params: Mapping[str, Any] | None = None) -> Iterator[httpx2.Response]:
        answer = self.send("GET", path, params=params)
        yield answer
        while link := answer.links.get("next", {}).get("url"):
            following = urlsplit(link)
            answer = self.send("GET", f"{path}?{following.query}")  # never to another host, whatever the link says
            yield answer


def _read(answer: httpx2.Response, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_json(answer.content)
    except ValidationError as error:
        raise WireError(
            f"the daemon answered with another shape than {kind} in {error.error_count()} places; is its version ours?"
        ) from None


def _part(text: str) -> str:
    return quote(text, safe=":")
