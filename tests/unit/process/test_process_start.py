"""A process ends with the one that started it, by what every system tells."""

from __future__ import annotations

import os
import subprocess
import sys

from azq.process.start import PARENT_VARIABLE

CHILD = "from azq.process.start import die_with_parent; die_with_parent(); print('up', flush=True); import time; time.sleep(60)"
PARENT = f"""
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", {CHILD!r}], env=os.environ | {{{PARENT_VARIABLE!r}: str(os.getpid())}})
time.sleep(60)
"""


def test_a_child_ends_once_its_parent_was_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        assert parent.stdout.read() == ""  # the child has the same pipe: it ends with the child


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    environment = os.environ | {PARENT_VARIABLE: "1"}
    assert subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, check=False).returncode == 130
