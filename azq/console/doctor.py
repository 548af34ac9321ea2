"""`azq doctor`: looks at everything that a fleet's work rests on, from this machine, and says what is wrong and what to do."""

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
from azq.host import brokers
from azq.host.devices import Wishes, plan
from azq.host.hardware import Machine, detect, vanished
from azq.host.join import checks
from azq.host.join.checks import Check
from azq.host.rundir import check_folder
from azq.host.users import NO_USERS, knows_roles
from azq.ledger import Ledger
from azq.ledger.types import RunState, RunView
from azq.status.deaths import CrashLoop, crash_loops, read_deaths
from azq.status.mendings import mendings
from azq.status.observe import read_workers
from azq.wire.connect import connect
from azq.wire.kinds import Kind
from azq.wire.messages import Heartbeat
from azq.wire.shards import data_names

LEAST_FREE_BYTES = 5e9  # as the alert on the learner's disk
NEEDED = (Kind.SELFPLAY, "inference", "learner")  # roles without which a run makes no progress


def examine(config: Config) -> Iterator[Check]:
    """One answer after the other; none raises. Starts nothing and changes nothing."""
    yield from _guarded("game", lambda: [_game(config)])
    yield from _guarded("home", lambda: [_home(config.home)])
    yield from _guarded("rest", lambda: [_rest(config)])
    yield from judge_devices(config, detect())
    if not config.broker.control_url:
        yield from _guarded("server", lambda: [_server(config.home)])
    try:
        resolved = brokers.resolve(config)
        with contextlib.closing(connect(resolved.broker.control_url, timeout_s=ASK_TIMEOUT_S)) as control:
            yield from _fleet(resolved, control)
    except AzqError as error:
        if config.broker.control_url or not isinstance(error, (ConfigError, BrokerAbsent)):
            yield Check("control", "fail", str(error))
        else:
            why = "none was ever started" if isinstance(error, ConfigError) else str(error).partition(";")[0]
            yield Check("brokers", "warn", f"none runs for {config.home.absolute()} ({why}): `azq up` starts them")


def _fleet(config: Config, control: redis.Redis) -> Iterator[Check]:
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


def _ledgers(bus: RedisBus, ledger: Ledger) -> list[Check]:
    return [Check("ledger", "warn", f"run {run}: {text}") for run in ledger.names() for text in mendings(bus, run, now_ms())]


def _workers(bus: RedisBus, ledger: Ledger) -> list[Check]:
    return judge_workers(read_workers(bus), ledger.runs(), crash_loops(read_deaths(bus), now_ms()))


def judge_workers(workers: Sequence[Heartbeat], runs: Sequence[RunView], loops: Sequence[CrashLoop] = ()) -> list[Check]:
    """Who lives, who dies again and again, and which running runs lack somebody whom nobody starts."""
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
    dying = [Check("workers", "fail", str(loop)) for loop in loops]
    if lacking:
        return [*dying, Check("workers", "warn", f"{living}; {'; '.join(lacking)}: start it (`azq up`, `azq worker`, systemctl)")]
    return dying or [Check("workers", "ok", f"{living}; runs: {len(runs)}")]


def judge_devices(config: Config, machine: Machine) -> list[Check]:
    """What devices do in an `azq up` with these settings, and which cannot be used, are gone, or are asked for and not there."""
    found = plan(machine, Wishes.of(config))
    checks = [Check("devices", "warn", f"{gpu}: {why}") for gpu, why in (found.left_out | vanished(config.home, machine)).items()]
    named = {device for device in (*found.inference, *found.training) if device.startswith("cuda")}
    missing = named - {gpu.device for gpu in machine.gpus if gpu.device not in found.left_out}
    checks += [Check("devices", "fail", f"{device} is asked for and not there; set auto or cpu") for device in sorted(missing)]
    return checks or [Check("devices", "ok", str(found))]


def _guarded(name: str, look: Callable[[], Sequence[Check]]) -> Sequence[Check]:
    try:
        return look()
    except AzqError as error:
        return [Check(name, "fail", str(error))]


def _game(config: Config) -> Check:
    game = games.load(config.run.game, **config.run.params)
    return Check("game", "ok", f"{game.name}: {game.num_players()} players, {game.num_distinct_actions()} actions")


def _server(home: Path) -> Check:
    program = find_server(home.absolute() / brokers.BROKER_FOLDER / "control")
    return Check("server", "ok", f"{program} is what `azq up` starts")


def _home(home: Path) -> Check:
    there = home.absolute()
    while not there.exists():
        there = there.parent
    check_folder(there)
    free = shutil.disk_usage(there).free
    text = f"{home.absolute()} can be written to, {free / 1e9:.1f} GB free"
    return Check("home", "ok", text) if free >= LEAST_FREE_BYTES else Check("home", "warn", f"{text}: make room, segments grow there")


def _rest(config: Config) -> Check:
    check_binding(config.daemon)
    with_own_token(config)  # says where the home's own token is open to others
    check_tls(config.daemon)
    return Check("rest", "ok", f"daemon.host {config.daemon.host}, port {config.daemon.port or 'any'}")


def _users(config: Config) -> Check:
    if knows_roles(config):
        return Check("users", "ok", "each role and each machine that joined has a user with rights of its own")
    return Check("users", "warn", NO_USERS)


def _data_plane(url: str, name: str) -> list[Check]:
    with contextlib.closing(connect(url, timeout_s=ASK_TIMEOUT_S)) as client:
        return checks.check_broker(client, name)


def _weights(config: Config, control: redis.Redis) -> Check:
    found = checks.check_store(control, config.store, config.home)
    return found if found.verdict == "ok" else Check("weights", "ok", "none yet")  # what it warns of concerns other machines
