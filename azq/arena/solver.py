"""An exact connect-four solver (extra `eval`), spoken to over pipes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from azq.errors import IllegalActionError, MissingExtra, WireError

SCRIPT = Path(__file__).with_name("solver_process.py")
END_AFTER_S = 5.0


class Solver:
    """The solver's process, started at once; raises `MissingExtra` where the extra `eval` is not installed."""

    def __init__(self) -> None:
        if importlib.util.find_spec("bitbully") is None:
            raise MissingExtra("player solver needs the package bitbully; install azq with its extra: pip install 'azq[eval]'")
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def scores(self, history: Sequence[int]) -> dict[int, int]:
        """Score of each legal action: positive wins (more: sooner), 0 draws, negative loses.

        Raises `IllegalActionError` for actions that do not replay and `WireError` when the solver died.
        """
        stdin, stdout = self._pipes()
        try:
            stdin.write(json.dumps({"actions": [int(action) for action in history]}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
        except (OSError, ValueError):
            raise WireError(f"the solver's process died (exit code {self._process.poll()}); reinstall azq[eval]") from None
        if "error" in answer:
            raise IllegalActionError(f"solver: {answer['error']}")
        return {int(action): int(score) for action, score in answer["scores"].items()}

    def close(self) -> None:
        """Ends the process."""
        stdin, stdout = self._pipes()
        stdin.close()
        try:
            self._process.wait(END_AFTER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        stdout.close()

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout
