"""Which version of a run serves, by hand: promote, roll back, pin, unpin."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from azq.errors import NotFound, StateConflict
from azq.ledger.records import sections_of
from azq.ledger.types import RunState
from azq.status import observe
from azq.status.schemas import PromotionOut, Reason
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import PromotionEvent, WeightEvent
from daemon.api.access import IDENTITY, OPERATE
from daemon.api.services import Services, Use
from daemon.api.weights import IN_CONTROL_PLANE, find_weights
from daemon.decide.promotion import Wish, settle

router = APIRouter(prefix="/v1/runs/{run}/weights", tags=["weights"])
Number = Annotated[int, Path(ge=1, le=10**9)]


@router.post("/{version}/promote", dependencies=[OPERATE])
def promote_weights(run: str, version: Number, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows this version from now on, and candidates are tried against it; where the newest weights serve, it is pinned."""
    return _note(run, "promote", version, request, use, body)


@router.post("/{version}/pin", dependencies=[OPERATE])
def pin_weights(run: str, version: Number, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows this version, whatever is published or promoted, until it is unpinned."""
    return _note(run, "pin", version, request, use, body)


@router.post("/rollback", dependencies=[OPERATE])
def roll_back_weights(run: str, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows the version that served before; where the newest weights serve, that one is pinned."""
    return _note(run, "rollback", 0, request, use, body)


@router.post("/unpin", dependencies=[OPERATE])
def unpin_weights(run: str, request: Request, use: Use, body: Reason | None = None) -> PromotionOut:
    """Self-play follows the best version again, or the newest where versions are not promoted."""
    return _note(run, "unpin", 0, request, use, body)


def _note(run: str, wish: Wish, version: int, request: Request, use: Services, body: Reason | None) -> PromotionOut:
    """Raises `NotFound` for weights that are not there, `StateConflict` for what the run's state or settings forbid."""
    view = use.ledger.run(run)
    sections = sections_of(view.record)
    if view.state in (RunState.FINISHED, RunState.FAILED):
        raise StateConflict(f"run {run} is {view.state}; resume it first")
    if sections.learner.lockstep_games:
        raise StateConflict(f"run {run} is in lockstep: the number of a game says which version plays it; leave out learner.lockstep_games")
    newest, known = find_weights(use, run, "latest"), observe.read_promotions(use.bus, run)
    gated = sections.arena.promotes
    deed, chosen = settle(run, wish, version, known.events, gated=gated, newest=newest.version)
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
