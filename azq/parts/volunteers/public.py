"""What everybody may know of the runs that volunteers play for."""

from __future__ import annotations

from typing import Any

import msgspec

from azq.arena.levels import Playable, playable
from azq.bus.base import Bus
from azq.bus.catalog import ModelCatalog
from azq.errors import NotFound, WireError
from azq.games.files import GameFiles
from azq.ledger import Ledger
from azq.parts.volunteers.backing import Guests
from azq.parts.volunteers.gateway import Gateway
from azq.parts.volunteers.rooms import Room
from azq.ratings.elo import version_of
from azq.status.observe import Standings, read_standing
from azq.status.strength import TOO_FEW, Standing, headline_kind, trends
from azq.status.viewer import GameView, view
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import BROWSER_PREFIX, LearnerStatus, MatchResult, SampleEvent

LEADERS = 100
SHOWN = 20  # of the newest games


class Public:
    """Public figures of the gateway's runs."""

    def __init__(self, gateway: Gateway, ledger: Ledger, bus: Bus, guests: Guests) -> None:
        self._gateway = gateway
        self._ledger = ledger
        self._bus = bus
        self._guests = guests
        self._standings = Standings()

    def figures(self, run: str = "") -> dict[str, Any]:
        """Of a run, or else of the one that most tabs play for; empty where none wants them. Raises `NotFound`, `AzqError`."""
        room = self._room(run)
        return self._of(room) if room else {}

    def playable(self, run: str = "") -> Playable | None:
        """What tabs play with against the same run; None where there is none. Raises as `figures`."""
        room = self._room(run)
        if room is None:
            return None
        run = room.record.run
        return playable(run, room.sections, ModelCatalog(self._bus, run).all(), read_standing(self._bus, run, self._standings).ratings)

    def game(self, uid: int, run: str = "") -> GameView:
        """One of the newest games of a run as `figures` finds it, ply by ply. Raises `NotFound`."""
        room = self._room(run)
        event = next((event for event in tuple(room.newest) if event.record.uid == uid), None) if room else None
        if room is None or event is None:
            raise NotFound("it is none of the newest games")
        game = room.sections.run
        named = msgspec.structs.replace(event, worker=self._name(event))
        return view(game.game, GameFiles().load(game.game, game.params), named)

    def _name(self, event: SampleEvent) -> str:
        return self._guests.name(event.worker.removeprefix(BROWSER_PREFIX))

    def _room(self, run: str) -> Room | None:
        rooms = dict(self._gateway.rooms)
        if run and run not in rooms:
            raise NotFound(f"no run {run} wants volunteers here; {'there is: ' + ', '.join(sorted(rooms)) if rooms else 'none does'}")
        return rooms.get(run) or max(rooms.values(), key=lambda room: len(room.sessions.tabs), default=None)

    def _of(self, room: Room) -> dict[str, Any]:
        run, links, game = room.record.run, tuple(self._gateway.links.values()), room.sections.run.game
        standing = read_standing(self._bus, run, self._standings)
        known = trends(game, standing)
        kind = headline_kind(game, known)
        first = kind if kind in known or not known else next(iter(known))  # what is measured, where its own measure is not
        return {
            "run": run,
            "game": game,
            "params": room.sections.run.params,
            "headline": first,
            "strength": known[first][-1].text if first in known else "–",
            "trend": [
                {"version": measure.version, "value": measure.value, "low": measure.low, "high": measure.high}
                for measure in known.get(first, ())
                if measure.text != TOO_FEW
            ],
            "state": str(self._ledger.run(run).state),
            "version": room.network.version if room.network else 0,
            "tabs": len(links),
            "contributors": len({link.guest.contributor for link in links if link.guest}),
            "totals": self._guests.totals(),
            "run_totals": {"games": self._ledger.counts(run).finished, "samples": self._samples(run)},
            "leaders": self._guests.leaderboard()[:LEADERS],
            "versions": _versions(standing),
            "runs": [
                {"run": name, "game": each.sections.run.game, "params": each.sections.run.params, "tabs": len(each.sessions.tabs)}
                for name, each in sorted(self._gateway.rooms.items())
            ],
            "newest": [
                {
                    "uid": event.record.uid,
                    "plies": len(event.record.actions) // 2,
                    "returns": event.returns,
                    "name": self._name(event),
                    "finished_ms": event.finished_ms,
                }
                for event in tuple(room.newest)[: -SHOWN - 1 : -1]
            ],
        }

    def _samples(self, run: str) -> int:
        frame = self._bus.get(keys.learner_status(run))
        try:
            return decode(frame, LearnerStatus).samples_inserted if frame else 0
        except WireError:
            return 0


def _versions(standing: Standing) -> list[dict[str, Any]]:
    engines = {match.first: match for match in reversed(standing.matches) if _is_engine(match)}
    rows = []
    for rating in standing.ratings:
        if (version := version_of(rating.player)) is not None:
            match = engines.get(rating.player)
            points = {"points": match.points, "points_se": match.points_se, "against": match.second} if match else NO_POINTS
            rows.append({"version": version, "elo": rating.elo, "low": rating.low, "high": rating.high, "games": rating.games} | points)
    return sorted(rows, key=lambda row: row["version"])


NO_POINTS = {"points": None, "points_se": None, "against": ""}


def _is_engine(match: MatchResult) -> bool:
    return match.second.startswith("gnubg:") and not match.error
