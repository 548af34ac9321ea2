"""`azq doctor`: all that a fleet's work rests on, each with what to change."""

from __future__ import annotations

import contextlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import redis

from azq import games
from azq.bus.redis import RedisBus
from azq.bus.server_program import find_server
from azq.clock import now_ms
from azq.config import Config
from azq.config.access import check_binding, check_tls, with_own_token
from azq.console.show import ASK_TIMEOUT_S
from azq.errors import AzqError, BrokerAbsent, ConfigError
from azq.findings import Finding
from azq.host import brokers
from azq.host.devices import Machine, Wishes, detect, plan, vanished
from azq.host.join import checks
from azq.host.rundir import check_folder
from azq.host.users import NO_USERS, knows_roles
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.status.conditions import CrashLoop, crash_loops, mendings, read_deaths
from azq.status.observe import read_workers
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat
from azq.wire.shards import data_names

LEAST_FREE_BYTES = 5e9  # as the alert on the learner's disk
NEEDED = (Kind.SELFPLAY, "inference", "learner")  # roles without which a run makes no progress


def examine(config: Config) -> Iterator[Finding]:
    """One answer after the other; none raises. Starts nothing and changes nothing."""
    yield from _guarded("game", lambda: [_game(config)])
    yield from _guarded("home", lambda: [_home(config.home)])
    yield from _guarded("rest", lambda: [_rest(config)])
    yield from judge_devices(config, detect())
    if not config.broker.control_url:
        folder = config.home.absolute() / brokers.BROKER_FOLDER / "control"
        yield from _guarded("server", lambda: [Finding("server", "ok", f"{find_server(folder)} is what `azq up` starts")])
    try:
        resolved = brokers.resolve(config)
        with contextlib.closing(connect(resolved.broker.control_url, timeout_s=ASK_TIMEOUT_S)) as control:
            yield from _fleet(resolved, control)
    except AzqError as error:
        if config.broker.control_url or not isinstance(error, (ConfigError, BrokerAbsent)):
            yield Finding("control", "fail", str(error))
        else:
            why = "none was ever started" if isinstance(error, ConfigError) else str(error).partition(";")[0]
            yield Finding("brokers", "warn", f"none runs for {config.home.absolute()} ({why}): `azq up` starts them")


def _fleet(config: Config, control: redis.Redis) -> Iterator[Finding]:
    yield from _guarded("control", lambda: checks.check_broker(control, "control"))
    planes = config.broker.data_planes
    for name, url in zip(data_names(len(planes)), planes, strict=True):
        yield from _guarded(name, partial(_data_plane, url, name))
    yield from _guarded("users", lambda: [_users(config)])
    yield from _guarded("clock", lambda: [checks.check_clock(control)])
    yield from _guarded("daemon", lambda: [checks.check_fleet(checks.read_fleet(control))])
    yield from _guarded("workers", lambda: _workers(RedisBus(control), Ledger(control)))
    yield from _guarded("ledger", lambda: _ledgers(RedisBus(control), Ledger(control)))
    yield from _guarded("weights", lambda: [_weights(config, control)])


def _ledgers(bus: RedisBus, ledger: Ledger) -> list[Finding]:
    return [Finding("ledger", "warn", f"run {run}: {text}") for run in ledger.names() for text in mendings(bus, run, now_ms())]


def _workers(bus: RedisBus, ledger: Ledger) -> list[Finding]:
    return judge_workers(read_workers(bus), ledger.runs(), crash_loops(read_deaths(bus), now_ms()))


def judge_workers(workers: Sequence[Heartbeat], runs: Sequence[RunView], loops: Sequence[CrashLoop] = ()) -> list[Finding]:
    """Live processes, crash loops, and the roles that running runs lack."""
    roles = Counter(beat.role for beat in workers)
    living = ", ".join(f"{count} {role}" for role, count in sorted(roles.items())) or "none"
    lacking = [
        f"{view.record.run} has no live {role}"
        for view in runs
        if view.state is RunState.RUNNING
        for role in NEEDED
        if not any(beat.role == role and beat.run in ("", view.record.run) for beat in workers)
        and not any(role in loop.name and loop.run in ("", view.record.run) for loop in loops)
    ]
    dying = [Finding("workers", "fail", str(loop)) for loop in loops]
    if lacking:
        return [*dying, Finding("workers", "warn", f"{living}; {'; '.join(lacking)}: start it (`azq up`, `azq worker`, systemctl)")]
    return dying or [Finding("workers", "ok", f"{living}; runs: {len(runs)}")]


def judge_devices(config: Config, machine: Machine) -> list[Finding]:
    """What devices do in an `azq up` with these settings, and which cannot be used, are gone, or are asked for and not there."""
    result = plan(machine, Wishes.of(config))
    checks = [Finding("devices", "warn", f"{gpu}: {why}") for gpu, why in (result.left_out | vanished(config.home, machine)).items()]
    named = {device for device in (*result.inference, *result.training) if device.startswith("cuda")}
    missing = named - {gpu.device for gpu in machine.gpus if gpu.device not in result.left_out}
    checks += [Finding("devices", "fail", f"{device} is asked for and not there; set auto or cpu") for device in sorted(missing)]
    return checks or [Finding("devices", "ok", str(result))]


def _guarded(name: str, check: Callable[[], Sequence[Finding]]) -> Sequence[Finding]:
    try:
        return check()
    except AzqError as error:
        return [Finding(name, "fail", str(error))]


def _game(config: Config) -> Finding:
    game = games.load(config.run.game, **config.run.params)
    return Finding("game", "ok", f"{game.name}: {game.num_players()} players, {game.num_distinct_actions()} actions")


def _home(home: Path) -> Finding:
    there = home.absolute()
    while not there.exists():
        there = there.parent
    check_folder(there)
    free = shutil.disk_usage(there).free
    text = f"{home.absolute()} can be written to, {free / 1e9:.1f} GB free"
    return Finding("home", "ok", text) if free >= LEAST_FREE_BYTES else Finding("home", "warn", f"{text}: make room, segments grow there")


def _rest(config: Config) -> Finding:
    check_binding(config.daemon)
    with_own_token(config)  # says where the home's own token is open to others
    check_tls(config.daemon)
    return Finding("rest", "ok", f"daemon.host {config.daemon.host}, port {config.daemon.port or 'any'}")


def _users(config: Config) -> Finding:
    own = "each role and each machine that joined has its own user and rights"
    return Finding("users", "ok", own) if knows_roles(config) else Finding("users", "warn", NO_USERS)


def _data_plane(url: str, name: str) -> list[Finding]:
    with contextlib.closing(connect(url, timeout_s=ASK_TIMEOUT_S)) as client:
        return checks.check_broker(client, name)


def _weights(config: Config, control: redis.Redis) -> Finding:
    result = checks.check_store(control, config.store, config.home)
    return result if result.severity == "ok" else Finding("weights", "ok", "none yet")  # what it warns of concerns other machines
