"""Whether a server is fit to be a broker: what it says of itself as facts, and the one judgement on them that every process asks.

What a server does not let itself be asked (INFO renamed away, a user without that right) is not judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import redis
from redis.exceptions import AskError, ClusterCrossSlotError, ClusterDownError, MasterDownError, NoPermissionError, ResponseError

from azq import logs
from azq.errors import AccessRefused, AzqError, BrokerRefused, BrokerUnavailable, ConfigError
from azq.wire import keys
from azq.wire.connect import address_of, translate

CONTROL = "control"
OLDEST = (6, 2)
# A right to run scripts is one to run programs there (CVE-2025-49844): the first release of each line of versions that mended it.
MENDED_SCRIPTS: Mapping[str, Mapping[tuple[int, ...], int]] = {
    "redis": {(6, 2): 20, (7, 2): 11, (7, 4): 6, (8, 0): 4, (8, 2): 2},
    "valkey": {(7, 2): 11, (8, 0): 6, (8, 1): 4},
}
CLUSTER = "CLUSTER"  # what the probe found where keys of two slots may not be named together

# Two keys of different slots that every role may write. To write nothing to a key that is not there changes nothing, and is refused
# like any write that takes memory.
_KEYS = (keys.run_prefix("one"), keys.run_prefix("two"))
_PROBE = "local answer = redis.pcall('SETRANGE', KEYS[1], 0, '') return type(answer) == 'table' and answer.err or ''"

# never: its settings have to change, or another server be named; refused: the user lacks a right; passing: it takes no writes now;
# full: none that take memory, but a learner that makes room has to start; advice: it works, and could be set better.
Verdict = Literal["sound", "advice", "full", "passing", "refused", "never"]
_ERRORS: Mapping[Verdict, type[AzqError]] = {
    "never": ConfigError,
    "refused": AccessRefused,
    "passing": BrokerUnavailable,
    "full": BrokerUnavailable,
}

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says of itself: the fields of INFO, and why it did not do what the probe asked; empty where it says nothing."""

    info: Mapping[str, Any] = field(default_factory=dict)
    probe: str = ""

    @property
    def program(self) -> str:
        """Its name and version."""
        if version := self.info.get("valkey_version"):
            return f"Valkey {version}"
        return f"Redis {self.info.get('redis_version', 'of unknown version')}"


@dataclass(frozen=True, slots=True)
class Fitness:
    """What to think of a server, and why: one sentence with place and remedy, empty for a sound one."""

    verdict: Verdict = "sound"
    reason: str = ""

    @property
    def error(self) -> AzqError | None:
        """What to raise where the server is of no use as it is."""
        kind = _ERRORS.get(self.verdict)
        return kind(self.reason) if kind else None


def facts_of(client: redis.Redis) -> ServerFacts:
    """The facts, by two questions that change nothing. Raises `BrokerError` where there is no answer to the second."""
    info: dict[str, Any] = {}
    with contextlib.suppress(BrokerRefused), translate(client):
        info = dict(client.info())
    with translate(client):
        return ServerFacts(info, _probe(client))


def _probe(client: redis.Redis) -> str:
    try:
        return bytes(client.eval(_PROBE, len(_KEYS), *_KEYS)).decode().lstrip("-")
    except MasterDownError:  # which redis-py takes for a cluster's
        raise
    except (ClusterCrossSlotError, ClusterDownError, AskError):
        return CLUSTER
    except NoPermissionError as error:
        return f"NOPERM {error}"
    except ResponseError as error:
        if not str(error).startswith("unknown command"):
            raise
        return str(error).partition(", with args")[0]


def judge(facts: ServerFacts, plane: str, place: str) -> Fitness:
    """What to think of the server at `place` as a plane: `control`, or any other name for one that carries evaluations only."""
    info = facts.info
    version = str(info.get("redis_version", ""))
    if info and tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < OLDEST:
        return Fitness("never", f"broker at {place} has version {version or 'unknown'}; azq needs Redis 6.2 or newer, or Valkey")
    mode = "cluster" if facts.probe == CLUSTER else str(info.get("redis_mode") or info.get("server_mode", "standalone"))
    if mode != "standalone":
        return Fitness("never", f"broker at {place} runs in {mode} mode, which azq does not speak; name a server that runs alone")
    return _judge_memory(info, plane, place) or _judge_writes(facts, plane, place) or _judge_keeping(info, plane, place)


def _judge_memory(info: Mapping[str, Any], plane: str, place: str) -> Fitness | None:
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if plane != CONTROL or policy == "noeviction" or not _number(info, "maxmemory"):
        return None
    why = f"control plane at {place} drops keys, games too, when its memory is full (maxmemory-policy {policy})"
    return Fitness("never", f"{why}; set noeviction there")


def _judge_writes(facts: ServerFacts, plane: str, place: str) -> Fitness | None:
    why = facts.probe
    if why.startswith(("NOPERM", "unknown command")):  # evaluations need no scripts
        wrong = f"broker at {place} runs no scripts for this user ({why}); give it the rights that `azq fleet acl` prints"
        return Fitness("refused", wrong) if plane == CONTROL else None
    if why.startswith("OOM"):
        return Fitness("full", f"broker at {place} is out of memory ({why}); raise its maxmemory")
    return Fitness("passing", f"broker at {place} takes no writes ({why}); mend that, or name its primary in azq.toml") if why else None


def _judge_keeping(info: Mapping[str, Any], plane: str, place: str) -> Fitness:
    if plane != CONTROL:
        evicts = _number(info, "maxmemory") and str(info.get("maxmemory_policy", "noeviction")) != "noeviction"
        advice = f"data plane at {place} drops requests when its memory is full; set maxmemory-policy noeviction there"
        return Fitness("advice", advice) if evicts else Fitness()
    if not info:
        unknown = f"broker at {place} does not show its settings (INFO); see to appendonly yes and maxmemory-policy noeviction there"
        return Fitness("advice", unknown)
    if not _number(info, "aof_enabled"):
        lost = "its crash loses open games, queues and results (`azq runs restore` goes on from the run's folder)"
        return Fitness("advice", f"broker at {place} keeps no append-only file: set appendonly yes, or {lost}")
    return _judge_scripts(info, place)


def _judge_scripts(info: Mapping[str, Any], place: str) -> Fitness:
    kind = "valkey" if "valkey_version" in info else "redis"
    version = tuple(int(part) for part in str(info[f"{kind}_version"]).split(".") if part.isdigit())
    mended_lines = MENDED_SCRIPTS[kind]
    if version[:2] > max(mended_lines) or version[2:3] >= (mended_lines.get(version[:2], 1 << 30),):
        return Fitness()
    mended = ", ".join(f"{line[0]}.{line[1]}.{patch}" for line, patch in mended_lines.items())
    why = f"{kind} {'.'.join(map(str, version))} at {place} lets any machine's script run programs there (CVE-2025-49844)"
    return Fitness("advice", f"{why}; update to one of {mended} or newer, unless its distribution mended it")


def _number(info: Mapping[str, Any], name: str) -> int:
    return int(info.get(name, 0) or 0)


def admit(client: redis.Redis, plane: str = CONTROL) -> None:
    """Lets a server be a broker, or says why not; what it does badly is logged.

    Raises `ConfigError` for what never works, `AccessRefused` for a right that is missing, `BrokerUnavailable` for what may pass.
    """
    fitness = judge(facts_of(client), plane, address_of(client))
    if fitness.error and fitness.verdict != "full":
        raise fitness.error
    if fitness.reason:
        log.warning("broker", reason=fitness.reason)
