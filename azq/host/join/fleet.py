"""What the machine that keeps the brokers tells of its fleet, and whom it lets in, as their owner."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from azq.bus.redis import RedisBus
from azq.config import load
from azq.errors import NotFound
from azq.host.brokers import open_control, resolve
from azq.host.join.member import Beat, RunSeen
from azq.host.join.token import Invitee, invitation
from azq.host.users import machines_of
from azq.ledger import Ledger
from azq.ledger.records import sections_of
from azq.status.observe import read_weights, read_workers
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.messages import RankBeat


def fleet_facts() -> tuple[list[Beat], dict[str, RunSeen]]:
    """Who lives in the fleet whose brokers are those of this home, and its runs. Raises `ConfigError` or `BrokerError`."""
    _, client = open_control(load())
    with contextlib.closing(client):
        bus, ledger = RedisBus(client), Ledger(client)
        beats = [Beat(beat.role, beat.host, beat.run) for beat in read_workers(bus)]
        if bus.get(keys.FLEET) is not None:
            beats.append(Beat("daemon", ""))
        runs: dict[str, RunSeen] = {}
        for view in ledger.runs():
            run, ranks, newest = view.record.run, sections_of(view.record).learner.ranks, read_weights(bus, view.record.run)
            living = [decode(frame, RankBeat) for number in range(1, ranks) if (frame := bus.get(keys.rank(run, number)))]
            at_work = sum(not beat.free for beat in living)
            runs[run] = RunSeen(str(view.state), ledger.counts(run).inserted, newest[0].version if newest else 0, at_work)
    return beats, runs


def admitted(guests: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """A new token for each machine; the one before, if any, is worth nothing any more."""
    config = load()
    for name, roles in guests.items():
        with machines_of(resolve(config)) as machines, contextlib.suppress(NotFound):
            machines.revoke(name)
        yield name, invitation(config, Invitee(name, tuple(roles)))["token"]
