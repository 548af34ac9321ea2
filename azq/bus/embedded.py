"""An embedded server: a Valkey or Redis process with its own folder, settings and password.

The folder keeps the owner's password, the users, the settings, the log and, for the control plane, the append-only file. A start
in a folder whose server answers adopts that one.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from azq.bus.append_only import cut_zeros
from azq.bus.server_program import find_server, note_writer, server_at, unreadable
from azq.errors import BrokerAbsent, BrokerError, BrokerUnavailable, ConfigError, StateConflict
from azq.files import locked, path_digest, private_folder, publish_file, socket_folder
from azq.process.start import parent_pipe
from azq.wire import acl
from azq.wire.connect import open_client, translate, turned_away

Role = Literal["control", "data"]

START_TIMEOUT_S = 10.0
LOAD_TIMEOUT_S = 300.0  # a large append-only file takes its time
STOP_TIMEOUT_S = 20.0
DATA_MEMORY = "1gb"
TCP_KEEPALIVE_S = 10  # a client whose machine was cut off holds its messages no longer than about twice that
_POLL_S = 0.01

# Becomes the server. A child ends it once the parent is dead, which standard input shows, and ends itself with the server.
_SHIM = """
import os, select, signal, sys
server, (ended, held) = os.getpid(), os.pipe()
if os.fork():
    os.set_inheritable(held, True)
    os.execv(sys.argv[1], sys.argv[1:])
os.close(held)
select.select([0, ended], [], [])
if os.getppid() == server: os.kill(server, signal.SIGTERM)
"""


class EmbeddedServer:
    """One embedded server. `start`, then `url`; `stop` ends only a server that this object started."""

    def __init__(
        self, role: Role, directory: Path, *, maxmemory: str = DATA_MEMORY, listen: tuple[str, int] | None = None, password: str = ""
    ) -> None:
        self._role = role
        self._directory = directory.absolute()
        self._maxmemory = maxmemory
        self._listen = listen  # host and port for other machines, besides the socket
        self._password = password  # empty: the one in its folder, or a new one
        self._password_file = self._directory / "password"
        self._users_file = self._directory / "users.acl"
        self._settings_file = self._directory / "server.conf"
        self.log_file = self._directory / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.pid = 0  # of the running server; 0 before `start`

    @property
    def socket(self) -> Path:
        """Where it listens: as its settings say it was started, else where this process would have it do so."""
        return _noted_socket(self._directory, self._settings_file) or _socket_path(self._directory, self._role)

    @property
    def url(self) -> str:
        """The address with its password. Raises `BrokerAbsent` where no server was ever started."""
        return self._url_of(self.password)

    @property
    def password(self) -> str:
        """Its password. Raises `BrokerAbsent` where no server was ever started."""
        if (password := self._kept_password()) is None:
            raise BrokerAbsent(f"no embedded {self._role} server was ever started in {self._directory}; `azq up` starts one")
        return password

    def known_url(self) -> str | None:
        """The address of the server that was started here at some time, whether it runs or not; None where there was none."""
        password = self._kept_password()
        return None if password is None else self._url_of(password)

    def start(self) -> bool:
        """Starts the server, which ends with this process, and waits until it answers; True when one ran here already and was adopted.

        Raises `MissingExtra` without a server program and `BrokerUnavailable` with the server's own words when it does not come up, or
        there is one and it cannot be adopted now.
        """
        self._make_directories()
        with locked(self._directory / "lock"):
            if pid := self._answering_pid():
                self.pid, self._process = pid, None
                self._check_listening()
                return True
            if self._role == "control":
                cut_zeros(self._directory)
            socket = self._make_socket_folder()
            binary = find_server(self._directory if self._role == "control" else None)
            server = server_at(binary)
            self._write_settings(socket, has_users=server is not None and server.version >= acl.SINCE)
            self._process = self._spawn(binary)
            self.pid = self._process.pid
            try:
                self._wait_until_ready()
                if self._role == "control" and server is not None:
                    note_writer(self._directory, server)  # for the next start to choose a program that reads its file
            except BaseException:
                self.stop()
                raise
            return False

    def died(self) -> bool:
        """Whether the server that this object started ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def ended_with(self) -> tuple[int, str]:
        """The exit code of a server that died, and its last words."""
        return (self._process and self._process.returncode) or 0, self._last_words()

    def responds(self, timeout_s: float) -> bool:
        """Whether it says anything at all, be it that it is still loading; one that hangs says nothing."""
        with contextlib.closing(open_client(self.url, timeout_s=timeout_s)) as client:
            try:
                client.ping()
            except (BusyLoadingError, ResponseError):
                return True
            except RedisError as error:
                return turned_away(error)
        return True

    def kill(self) -> None:
        """SIGKILL to the server if this object started it; `died` tells when it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def stop(self) -> None:
        """Ends the server if this object started it: first asks, then insists. An adopted one goes on."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.pid = 0
        if self.socket.parent != self._directory:
            with contextlib.suppress(OSError):  # not empty where another server has started meanwhile
                self.socket.parent.rmdir()

    def _kept_password(self) -> str | None:
        try:
            return self._password_file.read_text("ascii").strip()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self._password_file} is not readable: {error.strerror}; run azq as the user who owns it") from None

    def _url_of(self, password: str) -> str:
        return f"unix://:{quote(password, safe='')}@{quote(str(self.socket))}"

    def _check_listening(self) -> None:
        """Checks an adopted server, which has the settings it was started with."""
        if self._listen is None:
            return
        port = int(self._info()["tcp_port"])
        if port != self._listen[1]:
            raise ConfigError(
                f"an embedded {self._role} server (pid {self.pid}) runs already and does not listen at port {self._listen[1]}; "
                "stop it, then start again"
            )

    def _make_directories(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"cannot create {self._directory} for the broker: {error.strerror}; set another home") from None

    def _make_socket_folder(self) -> Path:
        socket = _socket_path(self._directory, self._role)
        private_folder(socket.parent)
        return socket

    def _write_settings(self, socket: Path, *, has_users: bool) -> None:
        if self._password or not self._password_file.exists():
            publish_file(self._password_file, (self._password or secrets.token_urlsafe(24)).encode(), 0o600)
        access = f"requirepass {self.password}"
        if has_users:
            before = self._users_file.read_text("utf-8") if self._users_file.exists() else ""
            publish_file(self._users_file, acl.file_text(self.password, before).encode(), 0o600)
            access = f"aclfile {_quoted(str(self._users_file))}"
        lines = settings(self._role, self._directory, socket, access, self._maxmemory, self._listen)
        publish_file(self._settings_file, ("\n".join(lines) + "\n").encode(), 0o600)

    def _spawn(self, binary: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", _SHIM, str(binary), str(self._settings_file)]
        with self.log_file.open("ab") as log:
            # A new session: Ctrl-C on the terminal must reach azq, which drains first, and not the broker.
            return subprocess.Popen(
                command, stdin=parent_pipe(), stdout=log, stderr=log, start_new_session=True, cwd=self._directory, umask=0o077
            )

    def _wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        latest = time.monotonic() + LOAD_TIMEOUT_S
        pause, why = threading.Event(), ""
        while True:
            try:
                if not self._info()["loading"]:
                    return
                deadline = min(time.monotonic() + START_TIMEOUT_S, latest)
            except BrokerError as error:
                why = str(error)
            if process.poll() is not None:
                words = self._last_words()
                if why := unreadable(words, self._directory, self.log_file):
                    raise StateConflict(why)
                raise BrokerUnavailable(f"embedded {self._role} server ended at once: {words}; see {self.log_file}")
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"embedded {self._role} server does not answer: {why or 'it still loads'}; see {self.log_file}")
            pause.wait(_POLL_S)

    def _answering_pid(self) -> int:
        """The process id of the server that runs here; 0 where none does, or it loads its file. Raises why it is not known."""
        try:
            info = self._info()
        except BrokerAbsent:
            return 0
        return 0 if info["loading"] else int(info["process_id"])

    def _info(self) -> dict[str, Any]:
        """What the server says of itself, also while it loads its file or its disk is full."""
        with contextlib.closing(open_client(self.url, timeout_s=2.0)) as client, translate(client):
            return dict(client.info())

    def _last_words(self) -> str:
        try:
            lines = self.log_file.read_text("utf-8", "replace").strip().splitlines()
        except OSError:
            lines = []
        return " | ".join(lines[-3:]) or "it said nothing"


def settings(role: Role, directory: Path, socket: Path, access: str, maxmemory: str, listen: tuple[str, int] | None = None) -> list[str]:
    """The lines of an embedded server's settings file; `access` says who may come in."""
    common = [
        *(("port 0",) if listen is None else (f"bind {listen[0]}", f"port {listen[1]}", f"tcp-keepalive {TCP_KEEPALIVE_S}")),
        f"unixsocket {_quoted(str(socket))}",
        "unixsocketperm 700",
        access,
        f"dir {_quoted(str(directory))}",
        "daemonize no",
        "always-show-logo no",
        'save ""',
        "maxmemory-policy noeviction",
        "maxclients 1000",
    ]
    if role == "control":
        return [*common, "appendonly yes", "appendfsync everysec"]
    return [*common, "appendonly no", f"maxmemory {maxmemory}"]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _socket_path(directory: Path, role: str) -> Path:
    """The server's socket: in its folder, or in a private one among temporary files, which brokers of several roles may share."""
    folder = socket_folder(directory, "server.sock")
    return folder / ("server.sock" if folder == directory else f"{role}.sock")


def _noted_socket(directory: Path, settings_file: Path) -> Path | None:
    """The socket among temporary files that a server's settings name, for processes with another TMPDIR; None for another folder's."""
    try:
        setting = re.search(r'^unixsocket "(.*)"$', settings_file.read_text("utf-8", "surrogateescape"), re.MULTILINE)
    except OSError:
        return None
    path = Path(re.sub(r"\\(.)", r"\1", setting[1])) if setting else directory
    return (
        path if path.parent.name.endswith(f"-{path_digest(directory)}") else None
    )  # else the folder was copied: another's server is there
