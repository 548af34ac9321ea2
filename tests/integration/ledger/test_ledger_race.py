"""Workers that race each other and a daemon that takes their leases away, on a real server with its own clock."""

from __future__ import annotations

import random
import threading
from typing import Any

from waiting import PATIENCE_S

from azq.errors import LeaseLost, NotFound, StateConflict
from azq.ledger import Ledger
from azq.ledger.types import SET_ASIDE_REASON
from azq.wire import keys
from azq.wire.codec import decode
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import GameRecord, Job, RunRecord, SampleEvent

WORKERS = 4
GAMES = 300
MAX_ATTEMPTS = 1_000_000
BRIEF_S = 0.004  # a lease that often ends while its worker still believes in it


def work(ledger: Ledger, name: str, enough: threading.Event) -> None:
    """Takes any job it can get, plays, forgets to renew, dies without a word."""
    dice = random.Random(name)
    while not enough.is_set():
        try:
            for view in ledger.jobs("r"):
                lease = ledger.claim(view.job.job_id, view.attempt, name, BRIEF_S)
                if lease is None:
                    continue
                games = ledger.adopt(lease, 8)
                threading.Event().wait(dice.uniform(0, 2 * BRIEF_S))
                ledger.journal(lease, [GameRecord(game.uid, game.actions + b"\1\0") for game in games])
                done, rest = games[: dice.randrange(9)], games
                ledger.finish_games(lease, [SampleEvent(game, (1.0, -1.0), name, 1) for game in done])
                if dice.random() < 0.5:
                    ledger.release(lease, [game for game in rest if game not in done])
        except LeaseLost:
            continue


def watch(ledger: Ledger, enough: threading.Event) -> None:
    """The daemon: takes leases away and keeps jobs there."""
    while not enough.is_set():
        ledger.expire("r", MAX_ATTEMPTS)
        ledger.mend()
        active = ledger.jobs("r")
        if len(active) < WORKERS:
            ledger.enqueue(Job("", "r", Kind.SELFPLAY, "cpu"))
        for view in active[:1]:
            try:
                ledger.requeue(view.job.job_id, view.attempt)
            except (StateConflict, NotFound):
                continue


def test_no_game_is_lost_or_finished_twice(broker):
    client = connect(broker.control_url)
    ledger = Ledger(client)
    ledger.create_run(RunRecord("r", b"{}", {}, "x", 1))
    enough = threading.Event()
    threads = [threading.Thread(target=work, args=(ledger, f"w{number}", enough)) for number in range(WORKERS)]
    threads.append(threading.Thread(target=watch, args=(ledger, enough)))
    for thread in threads:
        thread.start()
    for _ in range(2000):
        if ledger.counts("r").finished >= GAMES:
            break
        assert ledger.counts("r").balanced  # at every moment, not only at the end
        threading.Event().wait(0.01)
    enough.set()
    for thread in threads:
        thread.join(PATIENCE_S)

    assert not client.exists(keys.mended("r")), "what the rules leave is never taken for nonsense"
    counts = ledger.counts("r")
    assert counts.finished >= GAMES
    assert counts.balanced
    samples: list[Any] = client.xrange(keys.samples("r"))
    uids = [decode(fields[b"f"], SampleEvent).record.uid for _, fields in samples]
    assert len(uids) == len(set(uids)) == counts.finished
    pooled = [int(uid) for uid in client.lrange(keys.pool("r"), 0, -1)]
    held = [int(uid) for name in client.scan_iter(f"{keys.held_prefix('r')}*") for uid in client.smembers(name)]
    still_open = [int(uid) for uid in client.hkeys(keys.open_games("r"))]
    assert sorted(pooled + held) == sorted(still_open)
    # Leases here end so early that some game is blamed now and then: by name, never lost.
    set_aside: dict[Any, Any] = client.hgetall(keys.abandoned("r"))
    assert {reason.decode() for reason in set_aside.values()} <= {SET_ASIDE_REASON}
    assert sorted([*uids, *still_open, *map(int, set_aside)]) == list(range(1, counts.opened + 1))
    client.close()
