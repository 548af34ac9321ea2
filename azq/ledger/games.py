"""Open games on the control plane: adopted, journaled, finished, abandoned, given back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from azq.errors import StateConflict, WireError
from azq.ledger.door import ScriptDoor
from azq.ledger.types import Directive, Lease
from azq.wire.codec import decode, encode
from azq.wire.messages import GameRecord, SampleEvent


class LedgerGames(ScriptDoor):
    """The ledger's methods about open games."""

    def adopt(self, lease: Lease, count: int) -> list[GameRecord]:
        """Exactly `count` games for a lease, from the pool first, then new ones; none while the run does not run. Raises `LeaseLost`.

        A record that does not decode is abandoned with the reason and left out.
        """
        _, *answer = self.commit("games.adopt", lease, max(0, count))
        games = []
        for uid, frame in zip(answer[::2], answer[1::2], strict=True):
            try:
                games.append(decode(frame, GameRecord) if frame else GameRecord(int(uid)))
            except WireError as error:
                self.abandon(lease, int(uid), f"record does not decode: {error}")
        return games

    def journal(self, lease: Lease, records: Sequence[GameRecord]) -> Directive:
        """Writes the records of held games and renews the lease. Raises `LeaseLost`, also for a game that the lease does not hold."""
        return self.directive("games.journal", lease, *_by_uid(records))

    def finish_games(self, lease: Lease, events: Sequence[SampleEvent]) -> Directive:
        """Closes the games, appends their samples and renews the lease, all in one step.

        Raises `LeaseLost`, also for a game that the lease does not hold: nothing of the call is committed then.
        """
        uids = [event.record.uid for event in events]
        if len(set(uids)) != len(uids):
            raise StateConflict("a game occurs twice among those to finish; finish each once")
        return self.directive("games.finish", lease, *(item for event in events for item in (event.record.uid, encode(event))))

    def abandon(self, lease: Lease, uid: int, reason: str) -> None:
        """Closes a game that nobody can play on. Raises `LeaseLost`, also for a game that the lease does not hold."""
        self.commit("games.abandon", lease, uid, reason)

    def release(self, lease: Lease, records: Sequence[GameRecord]) -> None:
        """Writes the last changes, gives all held games to the front of the pool and ends the job. Raises `LeaseLost`."""
        self.commit("games.release", lease, *_by_uid(records))

    def complete(self, lease: Lease, result: bytes) -> None:
        """Appends a result frame to the run's results and ends the job. Raises `LeaseLost`."""
        self.commit("games.complete", lease, result)


def _by_uid(records: Iterable[GameRecord]) -> list[int | bytes]:
    return [item for record in records for item in (record.uid, encode(record))]
