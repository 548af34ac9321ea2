"""One command that makes this machine work for a fleet: look, write down, start. Each step is said in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis

from azq import logs
from azq.config import Config, load, merge, parse_overrides
from azq.config.host import TLS_SCHEME
from azq.errors import BrokerRefused, ConfigError
from azq.findings import Finding
from azq.host import devices
from azq.host.devices import Machine, detect
from azq.host.join import checks, plan
from azq.host.join.member import holding
from azq.host.join.plan import (
    CERTIFICATE,
    OF_RUNS,
    SECRETS,
    SETTINGS,
    Membership,
    Service,
    Training,
    check_training,
    parse_roles,
    plan_files,
    services,
)
from azq.host.join.token import Token, Trust, ask_token, has_password, login_of, settled, with_login
from azq.host.join.work import LOGS, MachineWork, describe, keep, keep_by_systemd, same
from azq.host.systemd.install import CONFIG_FOLDER, STATE_FOLDER
from azq.host.systemd.steps import Step, carry_out
from azq.ledger import Ledger
from azq.ledger.types import RunState
from azq.process.network import address_towards, interface_towards
from azq.status.brokers import fleet_of
from azq.wire.connect import connect
from azq.wire.messages import Fleet

CONNECT_TIMEOUT_S = 5.0
DAEMON_PATIENCE_S = 10.0  # a daemon that died is back by then

NO_TOKEN = Token()

Echo = Callable[[str], None]
Report = Callable[["Joined"], None]

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Wish:
    """Options of `azq join`."""

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
    runs: tuple[str, ...] = ()  # that are trained here
    rank: int | None = None
    learner_host: str = ""  # where that is not the brokers', for the ranks of other machines
    kind: str = ""
    per_hour: float | None = None
    settings: tuple[str, ...] = ()  # further ones of this machine's, as `--set` takes them

    @property
    def own(self) -> dict[str, Any]:
        """Settings of this machine alone, by section. Raises `ConfigError` for those that are the fleet's, and for what does not fit."""
        given = parse_overrides(self.settings)
        if "broker" in given:
            raise ConfigError("--set broker...: where the brokers are says the fleet; leave it out")
        machine: dict[str, Any] = {"kind": self.kind or None, "per_hour": self.per_hour}
        own = merge({"machine": {name: value for name, value in machine.items() if value is not None}}, given)
        load(overrides=self.settings)
        return {section: values for section, values in own.items() if values}


@dataclass(frozen=True, slots=True)
class Joined:
    machine: Machine
    services: tuple[Service, ...]
    checks: tuple[Finding, ...]
    done: tuple[str, ...]
    systemd: bool

    def values(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine) | {"cuda_devices": len(self.machine.gpus)},
            "services": [{"unit": service.unit, "concurrency": service.concurrency} for service in self.services],
            "checks": [check.values() for check in self.checks],
            "done": list(self.done),
            "systemd": self.systemd,
        }


def join(wish: Wish, echo: Echo, report: Report) -> int:
    """Joins; returns the exit code of the foreground's work, or 0. `echo` gets a line for each step, `report` all of it before work begins.

    Raises `BrokerUnavailable`, `BrokerRefused` (no or a wrong token), `ConfigError`, `StateConflict` (another schema, files of another
    fleet), `StoreError` (weights out of reach).
    """
    machine = detect()
    roles = parse_roles(wish.roles, machine)
    training = training_of(wish, roles)
    chosen = services(machine, roles, wish.tags, wish.concurrency, training)
    if "broker" in roles:
        return _keep(wish, machine, roles, chosen, echo, report)
    findings: list[Finding] = []

    def note(*more: Finding) -> None:
        for check in more:
            findings.append(check)
            echo(str(check))

    if wish.token.exposed:
        note(Finding("token", "warn", "others on this machine can read it in the command line: AZQ_JOIN_TOKEN or --token-file hides it"))
    if wish.token.text and not wish.token.user:
        note(Finding("token", "warn", "it is the brokers' one password, and allows everything in this fleet"))
    by_systemd = plan.runs_here() and not wish.foreground
    folder, home = (CONFIG_FOLDER, STATE_FOLDER / "runs") if by_systemd else (wish.folder, load().home)
    member = inspect(wish, roles, home, folder, note)
    if set(OF_RUNS) & set(roles) and not wish.runs:
        if not member.runs:
            raise ConfigError("no run runs that could be trained here; create one (azq runs create), or name it with --run")
        chosen = services(machine, roles, wish.tags, wish.concurrency, replace(training, runs=member.runs))
    note(Finding("machine", "ok", describe(machine)))
    note(*(Finding("gpu", "warn", f"{device}: {why}") for device, why in devices.plan(machine, devices.Wishes()).left_out.items()))
    steps, notes = _plan(wish, member, chosen, by_systemd)
    for line in notes:
        echo(f"     {line}")
    done = []
    for step in steps:
        done.append(f"would {step}" if wish.dry_run else carry_out(step))
        echo(f"{'plan' if wish.dry_run else 'ok':<5}{done[-1].removeprefix('would ')}")
    report(Joined(machine, chosen, tuple(findings), tuple(done), by_systemd))
    if by_systemd or wish.dry_run:
        return 0
    config = load(wish.folder / SETTINGS, member.overrides())
    echo(f"working in the foreground: {', '.join(map(str, chosen))}; logs in {wish.folder / LOGS}, Ctrl-C drains")
    with holding(wish.folder):
        return MachineWork(same(config), wish.folder).run(chosen)


def training_of(wish: Wish, roles: Sequence[str]) -> Training:
    """Its place among the ranks of several machines, which are to reach rank 0's: where the brokers are, unless that is said or is here."""
    check_training(roles, wish.rank, wish.learner_host)
    if wish.rank is None:
        return Training(wish.runs)
    brokers = urlsplit(wish.control_url).hostname or ""
    here = address_towards(brokers) if wish.rank == 0 and "broker" not in roles else ""
    host = wish.learner_host or here or brokers
    return Training(wish.runs, wish.rank, host, interface_towards(host))


def _keep(wish: Wish, machine: Machine, roles: Sequence[str], chosen: tuple[Service, ...], echo: Echo, report: Report) -> int:
    """Starts the first machine of a fleet, which needs no token."""
    if wish.token.text or wish.data_url or wish.tls_ca:
        raise ConfigError("a machine that keeps the brokers joins no fleet: leave --token, --data and --tls-ca out, or the role broker")
    if wish.own:
        raise ConfigError("the machine that keeps the brokers says in its own azq.toml what it costs: [machine] kind or per_hour")
    if set(OF_RUNS) & set(roles) and not wish.runs:
        raise ConfigError("the machine that keeps the brokers is there before any run: name those that it trains with --run")
    echo(str(looked := Finding("machine", "ok", describe(machine))))
    by_systemd = plan.runs_here() and not wish.foreground
    report(Joined(machine, chosen, (looked,), (), by_systemd))
    if by_systemd:
        keep_by_systemd(wish.control_url, chosen, echo, dry_run=wish.dry_run, force=wish.force)
    elif wish.dry_run:
        echo(f"plan would keep brokers at {wish.control_url} and start {', '.join(map(str, chosen)) or 'nothing else'}")
    return 0 if by_systemd or wish.dry_run else keep(wish.control_url, chosen, wish.folder, echo)


def inspect(wish: Wish, roles: tuple[str, ...], home: Path, folder: Path, note: Callable[..., None]) -> Membership:
    """Everything that can be known before anything is written. `folder`: where settings will be."""
    with ExitStack() as stack:
        token = _token_for(wish)
        trust = stack.enter_context(settled(wish.control_url, token, wish.tls_ca))
        control_url, client = _enter(wish.control_url, token, trust)
        stack.callback(client.close)
        note(*checks.check_broker(client, "control"), checks.check_clock(client))
        fleet = checks.wait_for_fleet(client, 0.0 if wish.data_url else DAEMON_PATIENCE_S)
        note(checks.check_fleet(fleet))
        data_urls = []
        for url in checks.choose_data_urls(wish.data_url, fleet, control_url):
            data_url, data = _enter(url, NO_TOKEN if has_password(url) else login_of(control_url), trust)
            stack.callback(data.close)
            note(*checks.check_broker(data, "data"))
            data_urls.append(data_url)
            note(*checks.check_secured(control_url, data_url))
        member = replace(
            _member(control_url, tuple(data_urls), fleet, wish.tags),
            certificate=trust.pem,
            anchors=str(folder / CERTIFICATE),
            own=wish.own,
        )
        if "inference" in roles:
            note(checks.check_store(client, member.store_url, home))
        if set(OF_RUNS) & set(roles):
            running = (view.record.run for view in Ledger(client).runs() if view.state is RunState.RUNNING)
            member = replace(member, runs=tuple(sorted(running)))
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
        if has_password(url) or not (typed := ask_token()).text:
            raise checks.explain_refusal(url, error, has_password(url)) from None
        return _enter(url, typed, trust)


def _member(control_url: str, data_urls: tuple[str, ...], fleet: Fleet | None, tags: tuple[str, ...]) -> Membership:
    agreed = fleet or fleet_of(Config())
    store_url = fleet.store_url if fleet else "redis"
    return Membership(control_url, data_urls, store_url, agreed.lease_s, agreed.heartbeat_s, tags)


def _plan(wish: Wish, member: Membership, chosen: tuple[Service, ...], by_systemd: bool) -> tuple[list[Step], list[str]]:
    if not chosen:
        raise ConfigError("no role suits this machine; choose some with --roles")
    if by_systemd:
        places = plan.here()
        plan.check_readable(places)
        return plan.plan_units(member, chosen, places, plan.read_templates(chosen), wish.force)
    files = plan_files(wish.folder, member, wish.force)
    notes = [note for file in files for note in file.notes]
    if any(file.step for file in files):
        notes.append(f"by hand: set -a; . {wish.folder / SECRETS}; azq worker --config {wish.folder / SETTINGS}")
    return [file.step for file in files if file.step], notes
