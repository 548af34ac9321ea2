"""Who works at a fleet's brokers: each role's processes and each machine that was let in, as users with their own rights.

The control plane's table of machines says which of them may be there, and for how long; users that it does not name are removed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import redis

from azq.config import Config
from azq.config.host import password_in, with_user
from azq.errors import BrokerRefused, BrokerUnavailable, ConfigError, NotFound, StateConflict
from azq.wire import acl, keys
from azq.wire.codec import decode, encode
from azq.wire.connect import address, address_of, connect, open_client, translate
from azq.wire.keys import Role
from azq.wire.kinds import Kind
from azq.wire.machines import AdmittedMachine

_SAME: tuple[Role, ...] = ("inference", "learner", "rank", "daemon", "gateway")
ROLE_OF: Mapping[str, Role] = {**dict.fromkeys(Kind, "worker"), **{role: role for role in _SAME}}
DAY_MS = 86_400_000
LONGEST_DAYS = 3650
LEAST_PASSWORD = 16


@dataclass(frozen=True, slots=True)
class SeenMachine:
    name: str
    machine: AdmittedMachine
    addresses: tuple[str, ...]  # that its connections to the control plane come from


def words_of(name: str, machine: AdmittedMachine) -> list[str]:
    """What a machine's user may do; its password is not among them."""
    return acl.rules(acl.machine_user(name), dict.fromkeys(ROLE_OF[role] for role in machine.roles))


def unwelcome(users: Iterable[str], machines: Mapping[str, AdmittedMachine], now_ms: int) -> set[str]:
    """Users of machines whose time is over, or that were never let in. Pure."""
    may_stay = {acl.machine_user(name) for name, machine in machines.items() if machine.expires_ms > now_ms}
    return {user for user in users if user.startswith(acl.MACHINE_PREFIX)} - may_stay


class Machines:
    """Machines of a fleet whose servers these are, the control plane's first; every call may raise `BrokerError`."""

    def __init__(self, servers: Sequence[redis.Redis]) -> None:
        self._servers = servers
        self._control = servers[0]

    def let_in(self, name: str, roles: Collection[str], days: float, now_ms: int) -> tuple[AdmittedMachine, str]:
        """A new machine and its password. Raises `ConfigError` for no name or role of one, `StateConflict` where it is in already."""
        if not acl.is_name(name):
            raise ConfigError(f"--name {name!r} is not lower-case letters, digits, - and _, at most 40; choose another")
        if unknown := [role for role in roles if role not in ROLE_OF]:
            raise ConfigError(f"--roles names {unknown[0]!r}; there are: {', '.join(ROLE_OF)}")
        if not roles or not 0 < days <= LONGEST_DAYS:
            raise ConfigError(f"a machine has some roles and 0 to {LONGEST_DAYS} days; mend --roles or --days")
        if (present := self.all().get(name)) and present.expires_ms > now_ms:
            raise StateConflict(f"machine {name} was let in before; `azq fleet revoke {name}` first, or choose another --name")
        machine = AdmittedMachine(tuple(roles), now_ms, now_ms + round(days * DAY_MS))
        password = secrets.token_urlsafe(24)
        with translate(self._control):
            self._control.hset(keys.MACHINES, name, encode(machine))
        self._set_user(acl.machine_user(name), ["reset", acl.hashed(password), *words_of(name, machine)])
        return machine, password

    def revoke(self, name: str) -> None:
        """Takes a machine's user back on all planes, which ends its connections at once. Raises `NotFound`."""
        if name not in (present := self.all()):
            raise NotFound(f"no machine {name!r} was let in; there are: {', '.join(sorted(present)) or 'none'}")
        self._remove([acl.machine_user(name)], [name])

    def expire(self, now_ms: int) -> list[str]:
        """Takes back every machine whose time is over; returns their names."""
        machines = self.all()
        over = [name for name, machine in machines.items() if machine.expires_ms <= now_ms]
        strangers = {user for server in self._servers for user in unwelcome(users_of(server), machines, now_ms)}
        if over or strangers:
            self._remove(sorted(strangers), over)
        return sorted({*over, *(user.removeprefix(acl.MACHINE_PREFIX) for user in strangers)})

    def renew(self) -> None:
        """Gives every machine's user the rights that this azq gives its roles, also on planes that are new."""
        for name, machine in self.all().items():
            user = acl.machine_user(name)
            if passwords := _password_hashes(self._control, user):
                self._set_user(user, [f"#{passwords[0]}", *words_of(name, machine)])

    def all(self) -> dict[str, AdmittedMachine]:
        with translate(self._control):
            rows: Any = self._control.hgetall(keys.MACHINES)
        return {name.decode(): decode(frame, AdmittedMachine) for name, frame in rows.items()}

    def seen(self) -> list[SeenMachine]:
        """Machines and where they connect from, by name."""
        with translate(self._control):
            clients: Any = self._control.client_list()
        return [
            SeenMachine(
                name,
                machine,
                tuple(sorted({_host(client_["addr"]) for client_ in clients if client_.get("user") == acl.machine_user(name)})),
            )
            for name, machine in sorted(self.all().items())
        ]

    def _set_user(self, user: str, words: Sequence[str]) -> None:
        for server in self._servers:
            _ask(server, "ACL", "SETUSER", user, *words)
            keep_users(server)

    def _remove(self, users: Sequence[str], names: Sequence[str]) -> None:
        if names:
            with translate(self._control):
                self._control.hdel(keys.MACHINES, *names)
        for server in self._servers:
            if users:
                _ask(server, "ACL", "DELUSER", *users)  # ends their connections too
            keep_users(server)


def as_row(seen: SeenMachine) -> dict[str, Any]:
    return {"name": seen.name, **msgspec.structs.asdict(seen.machine), "addresses": seen.addresses}


def as_text(machines: Sequence[SeenMachine], now_ms: int) -> str:
    lines = [
        f"{seen.name:<24} {','.join(seen.machine.roles):<26} {_left(seen.machine, now_ms):<18} {' '.join(seen.addresses) or '-'}"
        for seen in machines
    ]
    return "\n".join(lines) or "no machine was let in; `azq join-token` does that"


def _left(machine: AdmittedMachine, now_ms: int) -> str:
    left_ms = machine.expires_ms - now_ms
    return f"{left_ms / DAY_MS:.1f} days left" if left_ms > 0 else "its time is over"


@contextlib.contextmanager
def machines_of(config: Config) -> Iterator[Machines]:
    """The machines of the fleet that these settings name, with the rights of its owner."""
    with contextlib.ExitStack() as stack:
        yield Machines([stack.enter_context(contextlib.closing(client)) for client in owners_of(config)])


def owners_of(config: Config) -> list[redis.Redis]:
    """Connections to each server of a fleet as these settings have them, the control plane's first."""
    return [open_client(url) for url in _addresses(config)]


def _addresses(config: Config) -> list[str]:
    """Of each server once, the control plane's first."""
    return list(dict.fromkeys((config.broker.control_url, *config.broker.data_planes)))


def users_of(server: redis.Redis) -> list[str]:
    return [user.decode() for user in _ask(server, "ACL", "USERS")]


def keep_users(server: redis.Redis) -> bool:
    """Lets a server write its users down; False where it is set to forget them when it ends."""
    for command in (("ACL", "SAVE"), ("CONFIG", "REWRITE")):
        with contextlib.suppress(BrokerRefused):
            _ask(server, *command)
            return True
    return False


def keep_roles(server: redis.Redis, password: str) -> bool:
    """Makes the roles' users on a server, whose owner has this password; as `keep_users`. Raises `BrokerRefused` below Redis 7."""
    with translate(server):
        version = str(server.info("server")["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < acl.SINCE:
            raise BrokerRefused(f"broker at {address_of(server)} has version {version}; separate users need Redis 7 or Valkey")
    for user, words in acl.role_users(password).items():
        _ask(server, "ACL", "SETUSER", user, "reset", *words)
    return keep_users(server)


def give_roles(config: Config, *, apply: bool) -> Iterator[str]:
    """The roles' users of every server of these settings: as lines of its ACL file, or made there, which is then said.

    Raises `ConfigError` where a server's password is one that could be guessed, for those of the roles follow from it.
    """
    for url, server in zip(_addresses(config), owners_of(config), strict=True):
        password = password_in(url)
        if len(password) < LEAST_PASSWORD or keys.user_in(url) != keys.OWNER:
            raise ConfigError(f"the settings name {address(url)} without its owner's password of {LEAST_PASSWORD} letters or more; set one")
        if not apply:
            yield f"# {address(url)}"
            yield from (acl.line(user, words) for user, words in acl.role_users(password).items())
            continue
        with contextlib.closing(server):
            saved = keep_roles(server, password)
        yield f"{address(url)} has the users {', '.join(map(acl.role_user, acl.ROLES))}"
        if not saved:
            yield f"warning: {address(url)} forgets them when it ends; start it with `aclfile FILE`, or put these lines into its settings"


def _password_hashes(server: redis.Redis, user: str) -> list[str]:
    fields = _ask(server, "ACL", "GETUSER", user)
    facts = dict(zip(fields[::2], fields[1::2], strict=True)) if fields else {}
    return [word.decode() for word in facts.get(b"passwords", [])]


def _ask(server: redis.Redis, *words: str) -> Any:
    with translate(server):
        return server.execute_command(*words)  # type: ignore[no-untyped-call]


def _host(address: str) -> str:
    """Where a client is; behind a TLS front the server sees the front's socket alone."""
    return "TLS front" if "/" in address else address.rpartition(":")[0]


NO_USERS = (
    "all processes and machines share one password, which may do everything there: let azq keep users there "
    "(Redis 7 or Valkey; `azq fleet acl --apply`, or docs/5-operations.md)"
)


def as_role(config: Config, role: Role) -> Config:
    """The same settings with the addresses of a role's user; addresses of another user than the owner stay, and those without password."""
    broker, of = config.broker, partial(user_url, role=role)
    urls = {"control_url": of(broker.control_url), "data_url": of(broker.data_url), "data_urls": tuple(map(of, broker.data_urls))}
    return config.model_copy(update={"broker": broker.model_copy(update=urls)})


def knows_roles(config: Config) -> bool:
    """Whether the control plane keeps the roles' users, or the settings name a user that is not its owner."""
    url = user_url(config.broker.control_url, "daemon")
    if url == config.broker.control_url:
        return keys.user_in(url) != keys.OWNER
    try:
        connect(url).close()
    except BrokerRefused:
        return False
    except BrokerUnavailable:  # the next connection reports it
        return True
    return True


def in_roles(config: Config) -> Callable[[Role], Config]:
    """The settings of each role, which are these where the brokers keep no users."""
    return (lambda role: as_role(config, role)) if knows_roles(config) else (lambda role: config)


def user_url(url: str, role: Role) -> str:
    """The address of a server for a role's user, from its owner's; another is left as it is."""
    password = password_in(url)
    if not password or keys.user_in(url) != keys.OWNER:
        return url
    return with_user(url, acl.role_user(role), acl.role_password(password, role))
