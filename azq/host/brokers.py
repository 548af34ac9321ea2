"""The broker instances of one machine: the configured ones, or embedded servers under the home folder, one or more of them data planes."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import redis

from azq import logs
from azq.bus import certificate
from azq.bus.embedded import LOAD_TIMEOUT_S, EmbeddedServer
from azq.bus.redis import admit_data_planes, admitted
from azq.config import Config
from azq.config.host import data_settings
from azq.errors import BrokerAbsent, BrokerUnavailable, ConfigError, ExitCode
from azq.files import locked
from azq.host.fronts import TLS_FOLDER, FrontPlan, Listen, parse_listen
from azq.host.users import LEAST_PASSWORD, Machines, knows_roles, owners_of
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, hangs, notify, patient
from azq.process.supervisor import ChildSpec, Death, cause_of
from azq.waiting import AwakeClock
from azq.wire.connect import connect
from azq.wire.shards import data_names

BROKER_FOLDER = ".broker"
PLANES_FILE = "data-planes"  # their number
LOCK_FILE = ".azq-up.lock"
ASK_EVERY_S = 1.0  # between two looks whether the embedded servers answer
ASK_TIMEOUT_S = 0.5
STARTS = 3  # of a server that died, before `azq up` ends with its words


def with_urls(config: Config, control_url: str, *data_urls: str) -> Config:
    """The same settings with broker addresses filled in."""
    addresses = {"control_url": control_url, "data_url": "", "data_urls": (), **data_settings(data_urls)}
    return config.model_copy(update={"broker": config.broker.model_copy(update=addresses)})


def resolve(config: Config) -> Config:
    """Settings with the addresses of running brokers: the configured ones, else the embedded ones of the home folder.

    Raises `ConfigError` when neither exists; for commands that read or work beside a running `azq up`.
    """
    control = config.broker.control_url or _embedded_url(config.home, "control")
    data = config.broker.data_planes or tuple(_embedded_url(config.home, role) for role in data_names(_started(config)))
    if not control or not all(data):
        raise ConfigError(
            f"no broker: broker.control_url is not set and no embedded one was ever started under {config.home}; "
            "start `azq up` there, or set broker.control_url and broker.data_url in azq.toml"
        )
    return with_urls(config, control, *data)


def certificate_file(home: Path) -> Path:
    """The certificate that embedded brokers of a home folder show to other machines."""
    return home.absolute() / BROKER_FOLDER / TLS_FOLDER / certificate.CERTIFICATE


def open_control(config: Config) -> tuple[Config, redis.Redis]:
    """Settings with the addresses in force, and a connection to the control plane.

    Raises `BrokerUnavailable`; where nothing listens and the broker is the embedded one, the remedy is to start `azq up`.
    """
    resolved = resolve(config)
    try:
        return resolved, connect(resolved.broker.control_url)
    except BrokerAbsent as error:
        if config.broker.control_url:
            raise
        why = str(error).partition(";")[0]
        raise BrokerAbsent(f"nothing runs in {config.home.absolute()}: {why}; start `azq up`") from None


@contextlib.contextmanager
def reading_control(config: Config) -> Iterator[redis.Redis]:
    """A connection to the control plane, also where no `azq up` runs: the embedded one of the home folder then serves for so long.

    Raises as `open_control`, and `StateConflict` while another process starts there.
    """
    server = EmbeddedServer("control", config.home.absolute() / BROKER_FOLDER / "control")
    url = config.broker.control_url or server.known_url() or resolve(config).broker.control_url  # which says that there is none
    with contextlib.ExitStack() as stack:
        if not config.broker.control_url and not server.responds(ASK_TIMEOUT_S):
            stack.enter_context(home_lock(config.home))
            stack.callback(server.stop)
            server.start()
        yield stack.enter_context(connect(url))


def _started(config: Config) -> int:
    """Embedded data planes that the last `azq up` started, which other commands then need not know; else those that are set."""
    with contextlib.suppress(OSError, ValueError):
        return int((config.home / BROKER_FOLDER / PLANES_FILE).read_text("ascii"))
    return config.broker.data_shards


def _embedded_url(home: Path, role: str) -> str:
    server = EmbeddedServer("control" if role == "control" else "data", home.absolute() / BROKER_FOLDER / role)
    return server.known_url() or ""


class Brokers:
    """Starts the embedded servers that the settings leave to azq, and stops them at the end."""

    def __init__(self, config: Config, home: Path, listen: Listen | None = None) -> None:
        if listen and config.broker.control_url:
            raise ConfigError("--listen is for embedded brokers, and broker.control_url names a server; that server says where it listens")
        if listen:
            check_address(listen.host)
        if listen and not listen.plaintext:
            for place in range(1 + config.broker.data_shards):
                check_address(listen.host, listen.port + place)  # the fronts would wait for it
        self._config = config
        self._folder = home.absolute() / BROKER_FOLDER
        self._listen = listen
        self._servers: dict[str, EmbeddedServer] = {}
        self._heard_s: dict[str, float] = {}  # when each server answered last
        self._ask_s = 0.0  # when they are asked again
        self._hung_s: dict[str, float] = {}  # of those that were killed for it
        self._restarts: dict[str, threading.Thread] = {}
        self._failures: list[Exception] = []  # of restarts
        self._over = threading.Event()
        self._machines: Machines | None = None  # None: their servers are another's
        self.control: redis.Redis

    def apply(self, config: Config) -> Config:
        """Settings with the addresses in force."""
        control = self._servers["control"].url if "control" in self._servers else config.broker.control_url
        data = [server.url for role, server in self._servers.items() if role != "control"]
        return self._with_public(with_urls(config, control, *(data or config.broker.data_planes or (control,))))

    def _with_public(self, config: Config) -> Config:
        """Settings that tell other machines where the embedded servers listen, and weights where those machines see them."""
        if self._listen is None:
            return config
        control, *data = [self._listen.url(place) for place in range(len(self._servers))]
        public = {"public_control_url": control, **(data_settings(data, "public_") if data else {})}
        store = config.store.model_copy(update={"url": "redis"}) if config.store.url == "file" else config.store
        return config.model_copy(update={"broker": config.broker.model_copy(update=public), "store": store})

    @property
    def fronts(self) -> tuple[FrontPlan, ...]:
        """What has to run before the embedded servers for other machines to reach them over TLS. Makes the certificate at first."""
        listen = self._listen
        if listen is None or listen.plaintext:
            return ()
        files = certificate.ensure(self._folder / TLS_FOLDER, listen.host)
        return tuple(
            FrontPlan(role, f"{listen.host}:{listen.port + place}", server.socket, *files)
            for place, (role, server) in enumerate(self._servers.items())
        )

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(server.pid for server in self._servers.values())

    def expire(self, now_ms: int) -> list[str]:
        """Sends machines away whose time is over, from the embedded servers; returns their names. Raises `BrokerError`."""
        return self._machines.expire(now_ms) if self._machines else []

    def revive(self) -> list[Death]:
        """Has embedded servers that died start again with what their files keep, which may take minutes, and waits for none.

        Returns who died since the last call. Raises what a start failed with.
        """
        if self._failures:
            raise self._failures.pop()
        deaths = []
        for role, server in self._servers.items():
            if server.died() and not (role in self._restarts and self._restarts[role].is_alive()):
                code, last_words = server.ended_with()
                deaths.append(
                    Death(
                        ChildSpec(f"broker-{role}", (), server.log_file),
                        server.pid,
                        cause_of(code, self._hung_s.pop(role, None), last_words),
                    )
                )
                self._heard_s.pop(role, None)
                self._restarts[role] = threading.Thread(target=self._restart, args=(server,), name=f"keeps {role}", daemon=True)
                self._restarts[role].start()
        return deaths

    def _restart(self, server: EmbeddedServer) -> None:
        """Starts a server that died; one that is killed again while it starts is tried again."""
        for starts in range(1, STARTS + 1):
            if self._over.is_set():
                return
            try:
                server.start()
            except Exception as error:
                if starts == STARTS or not isinstance(error, BrokerUnavailable):
                    self._failures.append(error)
                    return
            else:
                return

    def end_hung(self, hang_after_s: float, now_s: float) -> tuple[str, ...]:
        """Kills embedded servers that answered nothing for so long, for `revive` to start again; returns their roles."""
        if now_s < self._ask_s:
            return ()
        for role, server in self._servers.items():
            if server.responds(ASK_TIMEOUT_S):
                self._heard_s[role] = now_s
        self._ask_s = now_s + ASK_EVERY_S
        over = tuple(role for role in self._servers if hangs(self._heard_s.get(role), now_s, hang_after_s))
        for role in over:
            self._hung_s[role] = hang_after_s
            self._servers[role].kill()
        return over

    def silent(self, now_s: float) -> bool:
        """Whether one has not answered lately, or not since it was started again."""
        return any(now_s - self._heard_s.get(role, -math.inf) > 2 * ASK_EVERY_S for role in self._servers)

    def __enter__(self) -> Brokers:
        try:
            self._start()
            config = self.apply(self._config)
            self.control = admitted(config.broker.control_url)
            admit_data_planes(config.broker)
            if "control" in self._servers and knows_roles(config):
                self._machines = Machines(owners_of(config))
                self._machines.renew()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.control.close()
        self._stop()

    def _start(self) -> None:
        if self._config.broker.control_url:
            return
        control = self._servers["control"] = EmbeddedServer("control", self._folder / "control", listen=self._open_at(0))
        control.start()
        if self._config.broker.data_planes:
            return
        # On servers without users a machine that joins has the one password: all planes then share it.
        password = control.password if self._listen else ""
        (self._folder / PLANES_FILE).write_text(str(self._config.broker.data_shards), "ascii")
        for place, role in enumerate(data_names(self._config.broker.data_shards), start=1):
            self._servers[role] = EmbeddedServer("data", self._folder / role, listen=self._open_at(place), password=password)
            self._servers[role].start()

    def _open_at(self, place: int) -> tuple[str, int] | None:
        """Where a server listens itself: nowhere but on its socket, unless plaintext was asked for."""
        return (self._listen.host, self._listen.port + place) if self._listen and self._listen.plaintext else None

    def _stop(self) -> None:
        self._over.set()
        for server in reversed(self._servers.values()):
            server.stop()  # only what it started itself


def check_address(host: str, port: int = 0) -> None:
    """Raises `ConfigError` where this machine cannot listen at an address. `port`: 0 for any."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        why, where = str(error.strerror).partition(" (")[0], f"{host}:{port}" if port else host
        raise ConfigError(f"--listen {where}: this machine cannot listen there ({why}); name its own address and a free port") from None


def home_lock(home: Path) -> contextlib.AbstractContextManager[None]:
    """One `azq up` a home folder. Raises `StateConflict` naming the holder."""
    remedy = f"works in {home}; stop it, or give another folder with --set home=FOLDER"
    return locked(home / LOCK_FILE, lambda pid: f"another azq up (pid {pid}) {remedy}")


TURN_S = 1.0
HANG_AFTER_S = 8.0

log = logs.get(__name__)


def main(config: Config, plane: str, listen: str, password_file: Path | None) -> int:
    """Serves until SIGTERM or SIGINT; its service manager restarts it when the server dies or hangs.

    Raises `ConfigError` for no such plane or a password that can be guessed, and `BrokerUnavailable` where the server does not come up.
    """
    if not re.fullmatch(r"control|data([1-9]\d{0,2})?", plane):
        raise ConfigError(f"--plane {plane!r} is none of control, data, data1, data2, ...")
    where = parse_listen(listen)
    assert where is not None
    server = EmbeddedServer(
        "control" if plane == "control" else "data",
        config.home.absolute() / BROKER_FOLDER / plane,
        listen=(where.host, where.port),
        password=read_password(password_file) if password_file else "",
    )
    with Interrupts() as stop:
        try:
            with patient(LOAD_TIMEOUT_S):
                server.start()
            notify(READY)
            log.info("broker_serves", plane=plane, listen=listen)
            _watch(server, stop)
            notify(STOPPING)
        finally:
            server.stop()
    return int(ExitCode.OK)


def read_password(file: Path) -> str:
    """The owner's password; raises `ConfigError` where the file holds none that is hard to guess."""
    try:
        text = file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--password-file {file} cannot be read: {error}; name a file that holds the password alone") from None
    if len(text) < LEAST_PASSWORD or len(text.split()) != 1:
        raise ConfigError(f"--password-file {file} holds no word of {LEAST_PASSWORD} letters or more; `openssl rand -hex 24` makes one")
    return text


def _watch(server: EmbeddedServer, stop: Interrupts) -> None:
    heard_s = (awake_s := AwakeClock())()
    while not stop.wait(TURN_S):
        if server.died():
            raise BrokerUnavailable("the broker's server died; its log is beside its data")
        now_s = awake_s()
        if server.responds(ASK_TIMEOUT_S):
            heard_s = now_s
            notify(WATCHDOG)
        elif hangs(heard_s, now_s, HANG_AFTER_S):
            server.kill()
