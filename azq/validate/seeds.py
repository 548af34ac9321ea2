"""Curves of several seeds, made by processes side by side."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence

import msgspec

from azq.errors import AzqError
from azq.process.python import PYTHON
from azq.process.start import bare_environment
from azq.validate.bands import BandPoint, SeedCurve
from azq.validate.curve import PointOfSeed, plan_of

COMMAND = (*PYTHON, "-m", "azq.validate.curve")


def curves_of(game: str, seeds: Sequence[int], processes: int, tell: Callable[[str], None]) -> Iterator[SeedCurve]:
    """Each as it is finished; whoever stops asking ends those at work. Raises `AzqError` where a process fails."""
    read_end, write_end = os.pipe()  # one for all: a line is written at once
    shares = [share for first in range(processes) if (share := seeds[first::processes])]
    running = [_started(game, share, write_end) for share in shares]
    os.close(write_end)
    points: dict[int, list[BandPoint]] = {seed: [] for seed in seeds}
    with open(read_end, "rb") as lines:
        try:
            for line in lines:
                seed, point = msgspec.structs.astuple(msgspec.json.decode(line, type=PointOfSeed))
                points[seed].append(point)
                tell(f"seed {seed}: step {point.step}, loss {point.loss:.4f}, {point.cpu_s:.0f} CPU-seconds")
                if len(points[seed]) == len(plan_of(game).versions):
                    yield SeedCurve(seed, points[seed])
            if any(process.wait() for process in running):
                raise AzqError(
                    f"a process that runs seeds of {game} failed, as it says above; the same command goes on with what --out has"
                )
        finally:
            for process in running:
                process.send_signal(signal.SIGINT)  # its files go with it
                process.wait()


def _started(game: str, seeds: Sequence[int], output: int) -> subprocess.Popen[bytes]:
    environment = {**bare_environment(), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*COMMAND, game, *map(str, seeds)], stdout=output, env=environment, start_new_session=True)
