"""`azq cluster` as its user calls it, and what of a cluster works on a host."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from lan_hosts import Host
from waiting import PATIENCE_S

from azq.process.start import AZQ, foreign_environment
from azq.waiting import until


class ClusterCommands:
    """`azq cluster` on this machine, which belongs to no host of the cluster."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __call__(self, verb: str, *arguments: str, code: int | None = 0) -> dict[str, Any]:
        """What it answers; `code` None: whatever came of it."""
        words = [*AZQ, "cluster", verb, str(self.file), "--json", *arguments]
        env = {**foreign_environment(), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd=self.file.parent, env=env)
        assert code in (None, done.returncode), f"{done.stderr}\n{done.stdout}"
        return dict(json.loads(done.stdout)) if done.stdout else {"said": done.stderr}

    def until(self, condition: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """The status in which something is true, whether the cluster is whole or not."""

        def look() -> dict[str, Any] | None:
            words = [*AZQ, "cluster", "status", str(self.file), "--json"]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=foreign_environment())
            found = json.loads(done.stdout or "{}")
            return found if found and condition(found) else None

        return until(look, f"{what} did not come", 120.0, every_s=1.0)


def processes(host: Host) -> list[str]:
    """The commands that are at work on a host."""
    pids = subprocess.run(["ip", "netns", "pids", host.space], capture_output=True, text=True, check=True).stdout.split()
    return [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]) if str(process.pid) in pids]
