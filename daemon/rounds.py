"""Asks whether an evaluation is still to come, for those who wait for one."""

from __future__ import annotations

import json

from azq.bus.base import Bus
from azq.config import parse_run
from daemon.fleet import eval_tag, live_tags
from daemon.observe import LedgerReader, read_round, read_workers
from daemon.state import EVAL


def outstanding(ledger: LedgerReader, bus: Bus, run: str, weight_version: int) -> bool:
    """True while weights of this version wait for their evaluation round, or a round is under way.

    False where nobody will ever play it: the run asks for none, or no eval worker lives. Raises `NotFound`.
    """
    sections = parse_run(json.loads(ledger.run(run).record.sections), f"sections of run {run}")
    workers = read_workers(bus)
    if sections.arena.every_s == 0 or eval_tag(workers, sections.run.tag) not in live_tags(workers, EVAL):
        return False
    if any(view.job.kind == EVAL for view in ledger.jobs(run)):
        return True
    newest = read_round(bus, run)
    return newest is None or newest.weight_version < weight_version
