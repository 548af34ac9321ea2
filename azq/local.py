"""`azq.Local`: a whole azq on this machine, as dask's LocalCluster: start it, wait for it, read it, kill a part of it, stop it.

It has its own home, brokers and ports, and nothing that is live on this machine reaches it (`azq.process.apart`).
"""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import redis

from azq.bus.redis import RedisBus
from azq.config import Config
from azq.config.loading import given
from azq.errors import EvaluationTimeout, NotFound, StateConflict
from azq.host.brokers import resolve
from azq.host.game_files import with_game
from azq.host.rundir import name_of
from azq.ledger import Ledger
from azq.ledger.types import LedgerCounts
from azq.process.apart import NO_SETTING, own, up
from azq.process.kin import Kin, borne
from azq.process.proc import tree_cpu_s
from azq.status.observe import read_workers
from azq.status.summary import RunStatus
from azq.waiting import until
from azq.wire.connect import open_client
from azq.wire.messages import Heartbeat
from azq.wire.shards import data_names

STATUS = "status.jsonl"  # what `azq up --json` prints
LOG = "up.log"
STOP_S = 120.0
POLL_S = 0.02

T = TypeVar("T")


class Local:
    """One `azq up` as a child process, watched through its control plane.

    `settings` are as after `--set`, `options` further ones of `azq up`. What is in `folder` is kept; without one the run is in a
    temporary folder, which is deleted at the end of a `with` block unless an error left it. Questions to its brokers are answered None
    while they are away.
    """

    def __init__(
        self,
        game: str = "connect_four",
        *,
        run: str = "",
        settings: Sequence[str] = (),
        options: Sequence[str] = (),
        folder: Path | None = None,
        environ: Mapping[str, str] = NO_SETTING,
        prefix: str = "azq-local-",
    ) -> None:
        self.game = game
        self.run = run or name_of(game)
        self.settings = tuple(settings)
        self.options = tuple(options)
        self.folder = Path(tempfile.mkdtemp(prefix=prefix)) if folder is None else folder
        self._temporary = folder is None
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._kin: Kin | None = None
        self._config: Config | None = None
        self._began = self._ends = False  # it was ever started; it was interrupted
        self._read = 0  # bytes of its statuses
        self._spent_s = 0.0
        self._status: RunStatus | None = None

    def start(self) -> Self:
        """Starts it; a run that is in its folder goes on."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / STATUS).open("ab") as statuses:
            self._read, self._spent_s, self._status = statuses.tell(), 0.0, None
            self._process = up(
                self.folder, self.folder / LOG, self.game, self.run, self.settings, *self.options, env=self._environ, stdout=statuses
            )
        self._kin, self._began, self._ends = Kin.of(self._process.pid), True, False
        return self

    def end(self) -> None:
        """Lets it drain and end as Ctrl-C does, and does not wait for that; may be called from any thread."""
        if self._process is not None and self.alive and not self._ends:
            self._ends = True  # a second one would abort it
            self._process.send_signal(signal.SIGINT)

    def stop(self) -> None:
        """Returns once it has drained; kills it where that takes too long."""
        if self._process is None:
            return
        try:
            self.end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        finally:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = self._config = self._kin = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
        if self._temporary and not (self._began and isinstance(error, Exception)):
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self._temporary and error is not None:
            error.add_note(f"files of the run are in {self.folder}")

    def wait(self, minutes: float = math.inf) -> RunStatus:
        """Where the run stands after so long, or at its end where that comes sooner.

        Raises `EvaluationTimeout` where it ended otherwise than well, or nothing was heard of it until then.
        """
        for _ in self.statuses(60 * minutes):
            pass
        if self._status is None:
            raise EvaluationTimeout(f"nothing was heard of run {self.run} within {minutes:g} minutes; see {self.folder / LOG}")
        return self._status

    def statuses(self, within_s: float = math.inf) -> Iterator[RunStatus]:
        """How the run goes, as it says so, to its end or for so long; raises `EvaluationTimeout` where it ended otherwise than well."""
        deadline_s = time.monotonic() + within_s
        while True:
            ended = self._process is None or self._process.poll() is not None
            yield from self._new_statuses()
            if self._process is None or ended or time.monotonic() >= deadline_s:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(POLL_S)
        if self._process is not None and self._process.returncode:
            raise EvaluationTimeout(self._how_it_ended())

    def status(self) -> RunStatus | None:
        """Where the run stands, or stood at its end; None where it has not said so yet."""
        for _ in self._new_statuses():
            pass
        return self._status

    def until(self, condition: Callable[[], T | None], what: str, within_s: float) -> T:
        """The first answer that is neither None nor False; `EvaluationTimeout` names what did not come, or how it ended instead."""

        def check() -> T | None:
            if self._process is not None and self._process.poll() is not None:
                raise EvaluationTimeout(self._how_it_ended())
            return condition()

        return until(check, f"{what} did not come within {within_s:g} s; see {self.folder}", within_s, every_s=POLL_S)

    @property
    def alive(self) -> bool:
        """Whether its `azq up` runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def kin(self) -> Kin:
        """The processes below its `azq up`: those that may be hurt. Raises `StateConflict` where that does not run."""
        if self._kin is None:
            raise StateConflict(f"the system in {self.folder} does not run, so nothing of it can be hurt")
        return self._kin

    def kill(self, role: str, with_signal: signal.Signals = signal.SIGKILL) -> None:
        """Sends a signal to the process of a role, as `learner` or `broker-control`. Raises `NotFound` naming those that run."""
        processes = self.kin.processes()
        if role not in processes:
            raise NotFound(f"no process of {role!r} runs in {self.folder}; there are: {', '.join(sorted(processes)) or 'none'}")
        self.kin.send(with_signal, processes[role])

    def cpu_s(self) -> float:
        """CPU-seconds of all its processes, those that ended included; after its end what was seen last."""
        if self._process is not None and self.alive:
            self._spent_s = tree_cpu_s(self._process.pid)
        return self._spent_s

    def config(self) -> Config:
        """Its settings, with the addresses of its brokers. Raises `ConfigError` before they were started."""
        if self._config is None:  # addresses stay the same while it lives, and this is asked fifty times a second
            self._config = resolve(self.given())
        return self._config

    def given(self) -> Config:
        """The settings that it was given."""
        return with_game(given(own(self.folder, self.settings)), self.game)

    @contextlib.contextmanager
    def client(self, plane: str = "control") -> Iterator[redis.Redis]:
        """A connection to its control plane, or to a data plane by its name: `data`, `data1`, ...; `NoVictim` where another's answers."""
        broker = self.config().broker
        urls = {"control": broker.control_url, **dict(zip(data_names(len(broker.data_planes)), broker.data_planes, strict=True))}
        with contextlib.closing(open_client(urls[plane], timeout_s=1.0)) as client:
            if self._kin is not None:  # much of what is sent to a broker hurts it
                self._kin.victim(pid_of_server(client), f"broker-{plane}")
            yield client

    def query(self, question: Callable[[redis.Redis], T], plane: str = "control") -> T | None:
        """What a broker answers; None while it is away."""
        with borne(), self.client(plane) as client:
            return question(client)
        return None

    def counts(self) -> LedgerCounts | None:
        """The ledger's account of the run's games."""
        return self.query(lambda client: Ledger(client).counts(self.run))

    def beats(self, role: str = "") -> list[Heartbeat]:
        """Heartbeats of a role, or of all, the latest started first; none while the broker is away."""
        beats = self.query(lambda client: read_workers(RedisBus(client))) or ()
        return sorted((beat for beat in beats if not role or beat.role == role), key=lambda beat: -beat.started_ms)

    def _new_statuses(self) -> Iterator[RunStatus]:
        """Those in whole lines that were not read yet."""
        with (self.folder / STATUS).open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                self._status = msgspec.json.decode(line, type=RunStatus)
                yield self._status

    def _how_it_ended(self) -> str:
        assert self._process is not None
        lines = (self.folder / LOG).read_text("utf-8", "replace").strip().splitlines()
        return f"azq up ended with exit code {self._process.returncode}: {lines[-1] if lines else 'no word of it'}; see {self.folder / LOG}"


def pid_of_server(client: redis.Redis) -> int:
    """The process that answers as a broker."""
    return int(client.info("server")["process_id"])
