"""How a process of azq starts another Python program: `-P`, so that no file of the folder it is started in takes a library's place."""

from __future__ import annotations

import sys

PYTHON = (sys.executable, "-P")
AZQ = (*PYTHON, "-m", "azq")  # a command of this azq begins so
