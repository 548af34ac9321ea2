"""Weights of a run: what was published, the bytes, which version serves by hand, and what goes when a run is deleted."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from azq.bus.base import Bus
from azq.bus.promotions import needed, pinned, state_of
from azq.errors import NotFound, StateConflict, WireError
from azq.ledger.records import sections_of
from azq.ledger.types import RunState
from azq.ratings.elo import version_of
from azq.status import observe
from azq.status.schemas import PromotionOut, Reason, WeightsOut
from azq.status.strength import Standing, game_of, most_positions, strength
from azq.wire import keys
from azq.wire.codec import decode_either, encode
from azq.wire.messages import MatchResult, ModelEvent, PromotionEvent, WeightEvent
from daemon.api.access import IDENTITY, OPERATE, WORKER
from daemon.api.services import Services, Use
from daemon.decide.promotion import Command, resolve

router = APIRouter(prefix="/v1/runs/{run}/weights", tags=["weights"])
CHUNK_BYTES = 256 * 1024
MEDIA_TYPE = "application/octet-stream"

Version = Annotated[str, Path(pattern=r"^(latest|[1-9][0-9]{0,8})$", description="A version's number, or `latest`.")]
FILE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A safetensors file.", "content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    304: {"description": "The caller has this file: its `If-None-Match` names the sha256.", "content": {}},
}


@router.get("", dependencies=[WORKER])
def list_weights(run: str, use: Use, limit: Annotated[int, Query(ge=1, le=observe.RESULTS_READ)] = 20) -> list[WeightsOut]:
    """The newest published weights, newest first: what they were evaluated on, what became of them, and how many inference workers serve
    them; those that serve, the best and the candidate are there however old they are."""
    record = use.ledger.run(run).record
    promotions = observe.read_promotions(use.bus, run)
    serving_now = observe.serving_version(use.bus, run, gated=sections_of(record).arena.promotes, promotions=promotions)
    standing = observe.read_standing(use.bus, run, use.standings)
    ratings = {version_of(rating.player): rating for rating in standing.ratings}
    scores = {version_of(scored.player): scored for scored in standing.scores}
    grades = {grade.weight_version: grade for grade in most_positions(standing.grades)}
    serving = Counter(beat.weight_versions.get(run) for beat in use.workers() if beat.role == "inference")
    opponents = _opponents(standing.matches)

    def row(event: WeightEvent) -> WeightsOut:
        figures: dict[str, Any] = {
            "served_by": serving[event.version],
            "serves": event.version == serving_now,
            "pinned": event.version == pinned(promotions.events),
            "state": state_of(promotions.events, event.version),
            "opponents": opponents[event.version],
        }
        if rating := ratings.get(event.version):
            figures |= {"elo": rating.elo, "elo_low": rating.low, "elo_high": rating.high, "rated_games": rating.games}
        if score := scores.get(event.version):
            figures |= {"score": score.score, "score_low": score.low, "score_high": score.high, "scored_games": score.games}
        if grade := grades.get(event.version):
            judged = strength(Standing(grades=[grade]), game_of(record))
            figures |= {"errors": None if judged.error_share is None else grade.errors, "loss": judged.loss}
            figures |= {"graded_positions": grade.positions}
        return WeightsOut.of(event).model_copy(update=figures)

    newest = observe.read_weights(use.bus, run, limit)
    old = sorted((needed(promotions.events) | {serving_now}) - {event.version for event in newest} - {0}, reverse=True)
    return [row(event) for event in (*newest, *(find_weights(use, run, str(version)) for version in old))]


def _opponents(matches: Sequence[MatchResult]) -> defaultdict[int | None, Counter[str]]:
    """Whom each version played, and how many games."""
    games: defaultdict[int | None, Counter[str]] = defaultdict(Counter)
    for match in matches:
        for player, other in ((match.first, match.second), (match.second, match.first)):
            games[version_of(player)][other] += match.games
    return games


@router.get("/{version}", response_class=Response, responses=FILE, dependencies=[WORKER])
def read_weights(run: str, version: Version, use: Use, if_none_match: Annotated[str, Header(max_length=1024)] = "") -> Response:
    """The weights as a safetensors file; `ETag` is their sha256, which was verified."""
    record = use.ledger.run(run).record
    event = find_weights(use, run, version)
    headers = {"ETag": f'"{event.sha256}"', "Azq-Weight-Version": str(event.version), "Cache-Control": "no-cache"}
    if event.sha256 in if_none_match:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    data = use.store_of(record, use.home).get(event.uri, event.sha256)
    headers |= {"Content-Length": str(len(data)), "Content-Disposition": f'attachment; filename="{run}-{event.version}.safetensors"'}
    view = memoryview(data)
    chunks = (bytes(view[start : start + CHUNK_BYTES]) for start in range(0, len(data), CHUNK_BYTES))
    return StreamingResponse(chunks, media_type=MEDIA_TYPE, headers=headers)


def find_weights(use: Services, run: str, version: str) -> WeightEvent:
    """A published version, or `latest`. Raises `NotFound`, naming the newest."""
    newest = observe.read_weights(use.bus, run)
    if not newest:
        raise NotFound(f"run {run} has published no weights yet")
    if version == "latest":
        return newest[0]
    back = newest[0].version - int(version)  # versions grow by one
    events = observe.read_weights(use.bus, run, back + 1) if back >= 0 else []
    for event in reversed(events):
        if event.version == int(version):
            return event
    raise NotFound(f"run {run} has no weights {version}; the newest are {newest[0].version}")


READ_AT_ONCE = 1000
IN_CONTROL_PLANE = "redis:"


def forget_run(use: Services, run: str) -> None:
    """Deletes it; one that is not there is passed over. Raises `StateConflict` while it works, its learner included."""
    try:
        view = use.ledger.run(run)
    except NotFound:
        return
    blobs = weights_in(use.bus, run)
    use.ledger.delete_run(run)
    if blobs:
        others = (view.record.run for view in use.ledger.runs())
        blobs -= {uri for other in others for uri in weights_in(use.bus, other)}  # equal weights are one blob
    store = use.store_of(view.record, use.home)
    for uri in blobs:
        store.delete(uri)
    for plane in use.planes[1:]:  # the data planes: of the control plane nothing is left
        plane.forget(run)


def weights_in(bus: Bus, run: str) -> set[str]:
    """Where in the control plane a run's weights are, those for browsers too."""
    uris: set[str] = set()
    for stream in (keys.weights(run), keys.networks(run), keys.onnx(run)):
        last = "0"
        while entries := bus.after(stream, last, count=READ_AT_ONCE):
            last = entries[-1].id
            for entry in entries:
                with contextlib.suppress(WireError):
                    uris.add(decode_either(entry.frame, WeightEvent, ModelEvent).uri)
    return {uri for uri in uris if uri.startswith(IN_CONTROL_PLANE)}


promotions = APIRouter(prefix="/v1/runs/{run}/weights", tags=["weights"])
Number = Annotated[int, Path(ge=1, le=10**9)]


@promotions.post("/{version}/promote", dependencies=[OPERATE])
def promote_weights(run: str, version: Number, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows this version from now on, and candidates are tried against it; where the newest weights serve, it is pinned."""
    return _note(run, "promote", version, request, use, body)


@promotions.post("/{version}/pin", dependencies=[OPERATE])
def pin_weights(run: str, version: Number, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows this version, whatever is published or promoted, until it is unpinned."""
    return _note(run, "pin", version, request, use, body)


@promotions.post("/rollback", dependencies=[OPERATE])
def roll_back_weights(run: str, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows the version that served before; where the newest weights serve, that one is pinned."""
    return _note(run, "rollback", 0, request, use, body)


@promotions.post("/unpin", dependencies=[OPERATE])
def unpin_weights(run: str, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows the best version again, or the newest where versions are not promoted."""
    return _note(run, "unpin", 0, request, use, body)


def _note(run: str, command: Command, version: int, request: Request, use: Services, body: Reason | None) -> PromotionOut:
    """Raises `NotFound` for weights that are not there, `StateConflict` for what the run's state or settings forbid."""
    view = use.ledger.run(run)
    sections = sections_of(view.record)
    if view.state in (RunState.FINISHED, RunState.FAILED):
        raise StateConflict(f"run {run} is {view.state}; resume it first")
    if sections.learner.lockstep_games:
        raise StateConflict(f"run {run} is in lockstep: the number of a game says which version plays it; leave out learner.lockstep_games")
    newest, decided = find_weights(use, run, "latest"), observe.read_promotions(use.bus, run)
    gated = sections.arena.promotes
    deed, chosen = resolve(run, command, version, decided.events, gated=gated, newest=newest.version)
    if deed != "unpinned":
        _check(use, find_weights(use, run, str(chosen)), newest)
    reason = body.reason if body else ""
    event = PromotionEvent(chosen, deed, reason, request.scope[IDENTITY].name, use.clock_ms())
    use.bus.publish(keys.promotions(run), encode(event))
    serving = observe.serving_version(use.bus, run, gated=gated)
    return PromotionOut.of(event).model_copy(update={"run": run, "serving": serving})


def _check(use: Services, weights: WeightEvent, newest: WeightEvent) -> None:
    """Raises `NotFound` where the control plane, which keeps the newest alone, has forgotten them."""
    if weights.uri.startswith(IN_CONTROL_PLANE) and use.bus.get(keys.blob(weights.sha256)) is None:
        raise NotFound(
            f"weights {weights.version} of run {weights.run} are not kept any more: the control plane keeps the newest alone; "
            f"take later ones, up to {newest.version}, or set a store.url, where all are kept"
        )
