"""Where a run's processes spend their time, by role and phase. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from azq.phases import OF_ROLE, WALL, merged, of_heartbeat, part
from azq.wire.messages import Heartbeat


def spent_by(beats: Sequence[Heartbeat]) -> dict[str, float]:
    """Shares of wall time as `<role>_<phase>`, means over the processes of a role that said anything; {} where none did."""
    found: dict[str, float] = {}
    for role in OF_ROLE:
        said = [figures for beat in beats if beat.role == role and (figures := of_heartbeat(beat.rates))]
        found |= {f"{role}_{phase}": share for phase, share in part(merged(said), WALL).items()}
    return found
