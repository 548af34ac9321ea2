"""What the parents of a pool load: they fork, and a CUDA context does not outlive a fork."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_parent_of_a_pool_never_loads_torch() -> None:
    code = "import sys, workers.app, workers.worker, workers.selfplay, workers.evaluate; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": "redis://127.0.0.1:1/0"}  # nobody is asked
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60, env=environment).returncode == 0


CARE = """
import sys, workers.app, workers.worker
from azq import logs
from azq.errors import BrokerError
from azq.ledger import Ledger, scripts
from azq.wire.connect import connect
logs.setup("test")
before = set(sys.modules)
for group in ("games", "jobs"):
    scripts.source(group)
try:
    Ledger(connect("unix:///nowhere/broker.sock")).job("r:1")
except BrokerError as error:
    logs.get("test").warning("pool_child_died", reason=str(error))
sys.exit(" ".join(sorted(set(sys.modules) - before)) or 0)
"""


def test_what_cares_for_dead_children_imports_nothing() -> None:
    # It does so in a thread, at the very moment in which another child is forked: that one would wait for the import's lock for ever.
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": "redis://127.0.0.1:1/0"}
    done = subprocess.run([sys.executable, "-c", CARE], check=False, timeout=60, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "pool_child_died" in done.stderr
