"""A process ends with the one that started it, by a pipe, which every system has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from azq.process.start import PARENT_PIPE

CHILD = """
import os, time
from azq.process.start import PARENT_PIPE, die_with_parent
die_with_parent()
assert PARENT_PIPE not in os.environ  # or its own children took their standard input for such a pipe
print('up', flush=True)
time.sleep(60)
"""
PARENT = f"""
import os, subprocess, sys, time
from azq.process.start import bound_to_this
subprocess.Popen([sys.executable, "-c", {CHILD!r}], **bound_to_this(os.environ))
if os.fork() == 0:
    os.close(1)
    os.read(0, 1)
    os._exit(0)
time.sleep(60)
"""


def test_a_child_ends_once_its_parent_was_killed_though_a_fork_of_it_lives_on() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.kill()
        assert parent.stdout.read() == ""  # the child has the same pipe: it ends with the child


def test_a_child_whose_parent_is_gone_already_ends_at_once() -> None:
    environment = os.environ | {PARENT_PIPE: "stdin"}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == -signal.SIGTERM
