"""The judgement on a server, as a table of what it says of itself."""

from __future__ import annotations

import re
from typing import Any

import pytest

from azq.errors import ExitCode
from azq.wire.fitness import CLUSTER, ServerFacts, judge

SOUND = {"redis_version": "8.2.2", "redis_mode": "standalone", "maxmemory_policy": "noeviction", "maxmemory": 1000, "aof_enabled": 1}
EVICTS = {"maxmemory_policy": "allkeys-lru"}
OOM = "OOM command not allowed when used memory > 'maxmemory'."
READONLY = "READONLY You can't write against a read only replica."


@pytest.mark.parametrize(
    ("plane", "info", "probe", "verdict", "words"),
    [
        ("control", SOUND, "", "sound", ""),
        ("control", SOUND | {"redis_version": "6.0.16"}, "", "never", r"6\.2"),
        ("data", SOUND | {"redis_version": "6.0.16"}, "", "never", r"6\.2"),
        ("control", SOUND | EVICTS, "", "never", "games too.*allkeys-lru.*set noeviction"),
        ("control", SOUND | {"maxmemory_policy": "volatile-ttl"}, OOM, "never", "volatile-ttl"),
        ("control", SOUND | EVICTS | {"maxmemory": 0}, "", "sound", ""),
        ("data", SOUND | EVICTS, "", "advice", "requests.*noeviction"),
        ("data2", SOUND | {"aof_enabled": 0}, "", "sound", ""),
        ("control", SOUND | {"aof_enabled": 0}, "", "advice", "appendonly yes"),
        ("control", SOUND | {"redis_version": "7.0.15"}, "", "advice", r"CVE.*update to.*8\.2\.2"),
        ("control", SOUND | {"redis_version": "8.2.1"}, "", "advice", "CVE"),
        ("control", SOUND | {"redis_version": "8.4.0"}, "", "sound", ""),
        ("data", SOUND | {"redis_version": "8.2.1"}, "", "sound", ""),
        ("control", SOUND | {"redis_version": "7.2.4", "valkey_version": "8.1.3"}, "", "advice", r"8\.1\.4"),
        ("control", SOUND | {"redis_version": "7.2.4", "valkey_version": "8.1.4"}, "", "sound", ""),
        ("control", SOUND | {"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "", "sound", ""),
        ("control", SOUND | {"redis_mode": "cluster"}, "", "never", "cluster mode"),
        ("control", {"redis_version": "7.2.4", "server_mode": "sentinel", "aof_enabled": 1}, "", "never", "sentinel mode"),
        ("data", {}, CLUSTER, "never", "cluster mode"),
        ("control", SOUND, READONLY, "passing", "read only replica.*primary"),
        ("data", SOUND, READONLY, "passing", "read only replica"),
        ("control", {}, READONLY, "passing", "read only replica"),
        ("control", SOUND | {"aof_enabled": 0}, OOM, "full", "maxmemory"),
        ("control", SOUND, "unknown command 'EVAL'", "refused", "EVAL.*azq fleet acl"),
        ("control", SOUND, "NOPERM no permission", "refused", "NOPERM"),
        ("data", SOUND, "NOPERM no permission", "sound", ""),
        ("control", {}, "", "advice", "INFO"),
        ("data", {}, "", "sound", ""),
    ],
)
def test_a_server_is_judged_by_what_it_says(plane: str, info: dict[str, Any], probe: str, verdict: str, words: str) -> None:
    found = judge(ServerFacts(info, probe), plane, "redis://first:6379/0")
    assert found.verdict == verdict
    assert re.search(f"first:6379.*{words}", found.reason) if words else not found.reason


@pytest.mark.parametrize(
    ("info", "probe", "code"),
    [
        (SOUND | EVICTS, "", ExitCode.CONFIG),
        (SOUND, READONLY, ExitCode.BROKER_UNAVAILABLE),
        (SOUND, OOM, ExitCode.BROKER_UNAVAILABLE),
        (SOUND, "NOPERM", ExitCode.BROKER_REFUSED),
    ],
)
def test_what_never_works_ends_a_process_for_good_and_what_may_pass_does_not(info: dict[str, Any], probe: str, code: ExitCode) -> None:
    error = judge(ServerFacts(info, probe), "control", "first").error
    assert error is not None
    assert error.exit_code is code
