"""One plane's server as a process of its own, as containers and schedulers want it; `azq up` and systemd start servers themselves."""

from __future__ import annotations

import re
from pathlib import Path

from azq import logs
from azq.bus.embedded import LOAD_TIMEOUT_S, EmbeddedServer
from azq.config import Config
from azq.errors import BrokerUnavailable, ConfigError, ExitCode
from azq.host.brokers import ASK_TIMEOUT_S, BROKER_FOLDER
from azq.host.fronts import parse_listen
from azq.host.users import LEAST_PASSWORD
from azq.process.interrupts import Interrupts
from azq.process.liveness import READY, STOPPING, WATCHDOG, notify, patient
from azq.process.supervisor import hangs
from azq.waiting import AwakeClock

TURN_S = 1.0
HANG_AFTER_S = 8.0

log = logs.get(__name__)


def main(config: Config, plane: str, listen: str, password_file: Path | None) -> int:
    """Serves until SIGTERM or SIGINT; whoever started it starts it again when its server dies or hangs.

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
