"""The machine that others join: it keeps the brokers, at the address that they are told, and whatever else it is to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from azq.config import load
from azq.config.host import TLS_SCHEME
from azq.errors import ConfigError
from azq.host import rundir
from azq.host.brokers import Brokers, home_lock
from azq.host.fronts import Listen, parse_listen
from azq.host.hardware import Machine
from azq.host.join import plan
from azq.host.join.folder import holding
from azq.host.join.plan import Service, sizing
from azq.host.join.work import LOGS, MachineWork
from azq.host.keeping import BrokerKeeper
from azq.host.systemd import install
from azq.host.systemd.steps import RunCommand, Step, carry_out
from azq.host.users import in_roles
from azq.wire.connect import SCHEMES, address, agree_on_schema

LISTENING = (TLS_SCHEME, "redis")  # without TLS where that is what the address says


def listen_of(url: str) -> Listen:
    """Where the brokers are to be reached, of the address that the others will join. Raises `ConfigError`."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES or parts.scheme not in LISTENING or parts.username or parts.password:
        raise ConfigError(f"{address(url)} is none of rediss://HOST:PORT/0 without a login; it is this machine's own address")
    listen = parse_listen(f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname, parts.scheme != TLS_SCHEME)
    assert listen is not None
    return listen


def keep_by_systemd(url: str, services: Sequence[Service], tell: Callable[[str], None], *, dry_run: bool, force: bool) -> None:
    """Installs brokers, fronts and daemon as units, and starts them with these services."""
    listen = listen_of(url)
    if listen.plaintext:
        raise ConfigError(f"{address(url)} is plaintext: units listen over TLS alone; write rediss://, or --foreground")
    if not dry_run:
        plan.check_readable(plan.here())
    for line in install.install(dry_run=dry_run, listen=f"{listen.host}:{listen.port}"):
        tell(f"     {line}")
    learners = [service.unit for service in services if service.kind == "learner"]
    names = [plan.TARGET, *(service.unit for service in services if service.unit not in learners)]
    steps: list[Step] = [file for each in services if each.sizing() and (file := sizing(install.UNIT_FOLDER, each, force).step)]
    steps += [RunCommand(("systemctl", "daemon-reload")), RunCommand(("systemctl", "enable", "--now", *names))]
    if learners:  # whose run may have to be created first
        steps += [RunCommand(("systemctl", *verb, *learners)) for verb in (("enable",), ("start", "--no-block"))]
    for step in steps:
        tell(f"plan would {step}" if dry_run else f"ok   {carry_out(step)}")


def keep(url: str, services: Sequence[Service], folder: Path, tell: Callable[[str], None]) -> int:
    """Keeps brokers and services alive in the foreground until Ctrl-C; returns the exit code.

    Raises `ConfigError` where this machine cannot listen there, `StateConflict` while another process works in its home.
    """
    config, listen = load(), listen_of(url)
    rundir.make_folder(config.home)
    with holding(folder), home_lock(config.home), Brokers(config, config.home, listen) as brokers:
        config = brokers.apply(config)
        agree_on_schema(brokers.control, upgrade=True)
        tell(f"brokers at {address(url)}, runs in {config.home.absolute()}; `azq join-token` there lets a machine in")
        tell(f"working in the foreground: {', '.join(map(str, services)) or 'brokers alone'}; logs in {folder / LOGS}, Ctrl-C drains")
        return MachineWork(in_roles(config), folder, BrokerKeeper(brokers)).run(services, brokers.fronts)


def describe(machine: Machine) -> str:
    """A machine in one line."""
    gpus = f", {len(machine.gpus)} GPUs" if machine.gpus else ""
    return f"{machine.host}: {machine.cores} cores, {machine.memory_bytes / (1 << 30):.1f} GiB{gpus}, tags {', '.join(machine.tags)}"
