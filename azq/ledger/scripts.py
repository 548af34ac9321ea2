"""The ledger's rules on the server: Lua scripts, so that every change is atomic. `azq.ledger.rules` says the same in Python.

`lua/prelude.lua` tells what all scripts take and answer. A group of commands is one script: a change is one EVALSHA of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from azq.ledger.rules.learner import WRITTEN_OFF
from azq.ledger.rules.runs import LEARNING, LOST_WITH_IT, TRANSITIONS
from azq.ledger.rules.state import KEPT_ENDED_JOBS, KEPT_EVENTS
from azq.ledger.rules.strikes import COMPANY, REASON, SET_ASIDE, SUSPECT
from azq.ledger.types import ONCE_LIFE_S, RECENT
from azq.wire import keys
from azq.wire.kinds import MAKES_GAMES, Kind
from azq.wire.messages import UNCHECKED

#: what a job's hash says of it, in the order in which scripts answer and `JobView` has it
JOB_FIELDS = (
    *("spec", "state", "attempt", "owner"),
    *("lease_until_ms", "published_ms", "created_ms", "claimed_ms", "ended_ms", "error"),
)
#: the fields of a `Job` that stand beside its frame: scripts read the first two, an azq of before `spec` reads, and wrote, all of them
SPELT_FIELDS = ("kind", "tag", "priority", "games", "slice_s", "payload")

Constant = str | int | bool | tuple[str, ...] | Mapping[str, bool] | Mapping[Kind, bool] | Mapping[int, int]

_SHARED = ("prelude", "strikes", "leases")
_LAST = "return commands[ARGV[1]](unpack(ARGV, FIRST, FIRST + 6)) -- those that take more read it from ARGV\n"


def _below_run(key: keys.RunKey) -> str:
    return key("").removeprefix(keys.run_prefix(""))


_KEYS = (
    *("run", "ledger", "open_games", "pool", "abandoned", "strikes", "jobs", "jobs_done", "job_prefix", "held_prefix"),
    *("samples", "weights", "results", "stall", "events", "learner_lease"),
)
_CONSTANTS: Mapping[str, Constant] = {
    "COMPANY": COMPANY,
    "JOB_FIELDS": JOB_FIELDS,
    "KEPT_ENDED_JOBS": KEPT_ENDED_JOBS,
    "KEPT_EVENTS": KEPT_EVENTS,
    "LEARNING": LEARNING,
    "LOST_WITH_IT": LOST_WITH_IT,
    "MAKES_GAMES": dict.fromkeys(sorted(MAKES_GAMES), True),
    "MOST_COMPANY": max(COMPANY.values()),
    "OF_RUN": tuple(_below_run(key) for key in keys.OF_RUN),
    "ONCE_LIFE_S": ONCE_LIFE_S,
    "RECENT": RECENT,
    "SET_ASIDE": SET_ASIDE,
    "SET_ASIDE_REASON": REASON,
    "SPELT_FIELDS": SPELT_FIELDS,
    "SUSPECT": SUSPECT,
    "TRANSITIONS": {f"{before} {after}": True for before, allowed in TRANSITIONS.items() for after in sorted(allowed)},
    "UNCHECKED": UNCHECKED,
    "WRITTEN_OFF": WRITTEN_OFF,
}


@cache
def source(group: str) -> str:
    """The script of a group of commands as the server gets it, with those keys and constants that it names."""
    folder = resources.files("azq.ledger") / "lua"
    body = "\n".join((folder / f"{name}.lua").read_text("utf-8") for name in (*_SHARED, group))
    values = {name.upper(): f"KEYS[1] .. {_literal(_below_run(getattr(keys, name)))}" for name in _KEYS}
    values |= {name: _literal(value) for name, value in _CONSTANTS.items()}
    named = set(re.findall(r"\b[A-Z_]+\b", body))
    return "".join(f"local {name} = {value}\n" for name, value in values.items() if name in named) + body + _LAST


def _literal(value: Constant) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return f"'{value}'"
        case tuple():
            return f"{{{', '.join(map(_literal, value))}}}"
    return f"{{{', '.join(f'[{_literal(name)}] = {_literal(item)}' for name, item in value.items())}}}"
