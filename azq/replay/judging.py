"""Games that follow the rules, told from those that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from azq.errors import IllegalActionError, WireError
from azq.replay.columns import NO_COLUMNS, Columns
from azq.replay.samples import JOINT_GAMES, Rules, Samples, samples_of_all
from azq.wire.messages import SampleEvent


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of some games."""

    samples: list[Samples] = field(default_factory=list)  # of the accepted ones, in their order
    counts: dict[int, int] = field(default_factory=dict)  # uid of each accepted game -> samples that it gives
    refused: dict[int, str] = field(default_factory=dict)  # uid -> why


def judge(game: Rules, events: Sequence[SampleEvent], root_value_fraction: float, columns: Columns = NO_COLUMNS) -> Judged:
    """Samples of all games that `samples_of_all` accepts, many at a time; no game occurs twice among the events."""
    judged = Judged()
    for start in range(0, len(events), JOINT_GAMES):
        _judge(judged, game, events[start : start + JOINT_GAMES], root_value_fraction, columns)
    return judged


def _judge(judged: Judged, game: Rules, events: Sequence[SampleEvent], root_value_fraction: float, columns: Columns) -> None:
    try:
        samples, counts = samples_of_all(game, events, root_value_fraction, columns)
    except (WireError, IllegalActionError) as error:
        if len(events) == 1:
            (event,) = events
            judged.refused[event.record.uid] = str(error)
            return
        for half in (events[: len(events) // 2], events[len(events) // 2 :]):  # the others are none the worse for it
            _judge(judged, game, half, root_value_fraction, columns)
        return
    judged.samples.append(samples)
    judged.counts.update(zip((event.record.uid for event in events), counts, strict=True))
