"""One command that makes this machine work for a fleet: look, write down, start. Each step is said in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import redis

from azq import logs
from azq.config import Config, load
from azq.config.host import TLS_SCHEME
from azq.errors import BrokerRefused, ConfigError, ExitCode
from azq.host import devices
from azq.host.hardware import Machine, detect
from azq.host.join import checks, plan
from azq.host.join.checks import Check
from azq.host.join.plan import CERTIFICATE, SECRETS, SETTINGS, Membership, Service, parse_roles, plan_files, services
from azq.host.join.token import Token, Trust, ask_token, has_password, login_of, settled, with_login
from azq.host.systemd.install import CONFIG_FOLDER, STATE_FOLDER
from azq.host.systemd.steps import Step, carry_out
from azq.process.interrupts import Aborted, Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.start import child_environment
from azq.process.supervisor import ChildSpec, Supervisor
from azq.status.brokers import fleet_of
from azq.wire.connect import connect
from azq.wire.messages import Fleet

LOGS = "logs"
TICK_S = 0.1
CONNECT_TIMEOUT_S = 5.0
DAEMON_PATIENCE_S = 10.0  # a daemon that died is back by then

NO_TOKEN = Token()

Tell = Callable[[str], None]

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Wish:
    """What the operator asked for."""

    control_url: str
    data_url: str = ""
    token: Token = NO_TOKEN
    tls_ca: Path | None = None
    roles: str = ""
    tags: tuple[str, ...] = ()
    concurrency: int | None = None
    folder: Path = Path()
    foreground: bool = False
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    machine: Machine
    services: tuple[Service, ...]
    checks: tuple[Check, ...]
    done: tuple[str, ...]
    systemd: bool

    def values(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine) | {"cuda_devices": len(self.machine.gpus)},
            "services": [{"unit": service.unit, "concurrency": service.concurrency} for service in self.services],
            "checks": [asdict(check) for check in self.checks],
            "done": list(self.done),
            "systemd": self.systemd,
        }


def join(wish: Wish, tell: Tell, report: Callable[[Joined], None]) -> int:
    """Joins; returns the exit code of the foreground's work, or 0. `tell` hears each step, `report` all of it before work begins.

    Raises `BrokerUnavailable`, `BrokerRefused` (no or a wrong token), `ConfigError`, `StateConflict` (another schema, files of another
    fleet), `StoreError` (weights out of reach).
    """
    machine = detect()
    roles = parse_roles(wish.roles, machine)
    chosen = services(machine, roles, wish.tags, wish.concurrency)
    found: list[Check] = []

    def note(*more: Check) -> None:
        for check in more:
            found.append(check)
            tell(str(check))

    if wish.token.exposed:
        note(Check("token", "warn", "others on this machine can read it in the command line: AZQ_JOIN_TOKEN or --token-file hides it"))
    if wish.token.text and not wish.token.user:
        note(Check("token", "warn", "it is the brokers' one password: whoever has it may do everything in this fleet"))
    by_systemd = plan.runs_here() and not wish.foreground
    kept, home = (CONFIG_FOLDER, STATE_FOLDER / "runs") if by_systemd else (wish.folder, load().home)
    member = look(wish, roles, home, kept, note)
    note(Check("machine", "ok", _describe(machine)))
    note(*(Check("gpu", "warn", f"{device}: {why}") for device, why in devices.plan(machine, devices.Wishes()).left_out.items()))
    steps, notes = _plan(wish, member, chosen, by_systemd)
    for line in notes:
        tell(f"     {line}")
    done = []
    for step in steps:
        done.append(f"would {step}" if wish.dry_run else carry_out(step))
        tell(f"{'plan' if wish.dry_run else 'ok':<5}{done[-1].removeprefix('would ')}")
    report(Joined(machine, chosen, tuple(found), tuple(done), by_systemd))
    if by_systemd or wish.dry_run:
        return 0
    config = load(wish.folder / SETTINGS, member.overrides())
    tell(f"working in the foreground: {', '.join(map(str, chosen))}; logs in {wish.folder / LOGS}, Ctrl-C drains")
    return work(config, chosen, wish.folder / LOGS)


def look(wish: Wish, roles: tuple[str, ...], home: Path, kept: Path, note: Callable[..., None]) -> Membership:
    """Everything that can be known before anything is written. `kept`: the folder that settings will be in."""
    with ExitStack() as stack:
        token = _token_for(wish)
        trust = stack.enter_context(settled(wish.control_url, token, wish.tls_ca))
        control_url, client = _enter(wish.control_url, token, trust)
        stack.callback(client.close)
        note(*checks.check_broker(client, "control"), checks.check_clock(client))
        fleet = checks.wait_for_fleet(client, 0.0 if wish.data_url else DAEMON_PATIENCE_S)
        note(checks.check_fleet(fleet))
        data_urls = []
        for told in checks.choose_data_urls(wish.data_url, fleet, control_url):
            data_url, data = _enter(told, NO_TOKEN if has_password(told) else login_of(control_url), trust)
            stack.callback(data.close)
            note(*checks.check_broker(data, "data"))
            data_urls.append(data_url)
            note(*checks.check_secured(control_url, data_url))
        member = replace(_member(control_url, tuple(data_urls), fleet, wish.tags), certificate=trust.pem, anchors=str(kept / CERTIFICATE))
        if "inference" in roles:
            note(checks.check_store(client, member.store_url, home))
        return member


def _token_for(wish: Wish) -> Token:
    """The token, asked for where brokers that speak TLS are to be known by it."""
    if wish.token.text or wish.tls_ca or has_password(wish.control_url) or not wish.control_url.startswith(f"{TLS_SCHEME}://"):
        return wish.token
    return ask_token()


def _enter(url: str, token: Token, trust: Trust) -> tuple[str, redis.Redis]:
    """A broker's URL with user and password, and a connection; asks for the token where one is needed and somebody is there to ask."""
    url = with_login(url, token)
    try:
        return url, connect(trust.of(url), timeout_s=CONNECT_TIMEOUT_S)
    except BrokerRefused as error:
        if has_password(url) or not (asked := ask_token()).text:
            raise checks.explain_refusal(url, error, has_password(url)) from None
        return _enter(url, asked, trust)


def _member(control_url: str, data_urls: tuple[str, ...], fleet: Fleet | None, tags: tuple[str, ...]) -> Membership:
    agreed = fleet or fleet_of(Config())
    store_url = fleet.store_url if fleet else "redis"
    life = agreed.lease_s, agreed.heartbeat_s, agreed.heartbeat_life_s
    return Membership(control_url, data_urls, store_url, *life, tags, fleet.shards_per_run if fleet else 0)


def _plan(wish: Wish, member: Membership, chosen: tuple[Service, ...], by_systemd: bool) -> tuple[list[Step], list[str]]:
    if not chosen:
        raise ConfigError("no role suits this machine; choose some with --roles")
    if by_systemd:
        places = plan.here()
        plan.check_readable(places)
        return plan.plan_units(member, chosen, places, plan.read_templates(), wish.force)
    files = plan_files(wish.folder, member, wish.force)
    notes = [note for file in files for note in file.notes]
    if any(file.step for file in files):
        notes.append(f"by hand: set -a; . {wish.folder / SECRETS}; azq worker --config {wish.folder / SETTINGS}")
    return [file.step for file in files if file.step], notes


def _describe(machine: Machine) -> str:
    gpus = f", {len(machine.gpus)} GPUs" if machine.gpus else ""
    return f"{machine.host}: {machine.cores} cores, {machine.memory_bytes / (1 << 30):.1f} GiB{gpus}, tags {', '.join(machine.tags)}"


def work(config: Config, services: Sequence[Service], folder: Path) -> int:
    """Keeps the services alive until Ctrl-C or until all of them gave up; returns the exit code. Their logs are in the folder."""
    supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
    with Interrupts() as interrupts:
        try:
            for service in services:
                supervisor.start(_child(config, service, folder))
            code = _watch(supervisor, interrupts)
            log.info("draining", remedy="open games go back to the pool; Ctrl-C again aborts")
            supervisor.stop(tuple(supervisor.children), interrupts.pause)
            return code
        except Aborted:
            supervisor.kill()
            return int(ExitCode.INTERRUPTED)


def _child(config: Config, service: Service, folder: Path) -> ChildSpec:
    name = f"{service.kind}@{service.instance}"
    command = [sys.executable, "-m", "azq", *service.command]
    return ChildSpec(name, command, folder / f"{name.replace(':', '+')}.log", env=child_environment(config, service.kind))


def _watch(supervisor: Supervisor, interrupts: Interrupts) -> int:
    """Starts again what died until a stop is asked for or nothing is left that may be started."""
    while not interrupts.count:
        if len(failed := supervisor.look()) == len(supervisor.children):
            return next(iter(failed.values()))
        interrupts.pause(TICK_S)
    return int(ExitCode.OK)
