"""A run that is deleted, with the weights that the control plane keeps for it."""

from __future__ import annotations

import contextlib

from azq.bus.base import Bus
from azq.errors import NotFound, WireError
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import WeightEvent
from daemon.api.services import Services

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
    """Where in the control plane a run's weights are."""
    found: set[str] = set()
    last = "0"
    while entries := bus.after(keys.weights(run), last, count=READ_AT_ONCE):
        last = entries[-1].id
        for entry in entries:
            with contextlib.suppress(WireError):
                found.add(decode(entry.frame, WeightEvent).uri)
    return {uri for uri in found if uri.startswith(IN_CONTROL_PLANE)}
