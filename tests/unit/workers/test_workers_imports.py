"""What the parents of a pool load: they fork, and a CUDA context does not outlive a fork."""

from __future__ import annotations

import os
import subprocess
import sys


def test_the_parent_of_a_pool_never_loads_torch() -> None:
    code = "import sys, workers.app, workers.worker, workers.selfplay, workers.evaluate; sys.exit('torch' in sys.modules)"
    environment = {**os.environ, "AZQ_BROKER__CONTROL_URL": "redis://127.0.0.1:1/0"}  # nobody is asked
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60, env=environment).returncode == 0
