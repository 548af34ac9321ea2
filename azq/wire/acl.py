"""The rights of each user at a broker, made from the table of keys. Pure.

A role may touch the keys that its code reads or writes, and no command that is about the server itself. Every plane gets the same users:
a key of the other plane does not exist there. Redis 7, Valkey; older servers cannot tell reading from writing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Mapping

from azq.wire.keys import AZQ_ROLES, EVENTS, OWNER, PIDBOX, TABLE, Key, Role

SINCE = (7, 0)  # of Redis; Valkey tells such a version too
ROLES: tuple[Role, ...] = (*AZQ_ROLES, "flower")
ROLE_PREFIX, MACHINE_PREFIX = "azq-", "machine-"  # of users' names: an operator's own are others
NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,39}"

# Of the data commands none that looks at keys without naming them; of connections only what a client says of itself. What a script or
# function calls is judged by its caller's rights (Redis and Valkey alike), so EVAL gives no right, and functions would take none.
_COMMANDS = (
    "-@all +@read +@transaction +@connection -@admin -@dangerous -scan -randomkey -dbsize -client +client|setinfo +client|setname "
    "+eval +evalsha +script|load +script|exists +time +info"
)
# Only what leaves a key its type: only the owner can put a value of another type where scripts look for theirs.
_WRITES = {
    "list": "lpush rpush lpop rpop lrem blpop brpop",
    "set": "sadd srem",
    "hash": "hset hsetnx hdel hincrby",
    "zset": "zadd zrem",
    "stream": "xadd xdel xack xreadgroup xautoclaim xgroup|create",
    "string": "set incr incrby",
    "none": "setrange",  # the probe of azq.wire.fitness
}
_ENDS = "del unlink expire pexpire persist"
# Who listens to a pattern of channels must be given that very pattern; what is in brackets is judged by itself.
_TELLS = ("+publish", f"&{EVENTS}")
_MORE: dict[Role, tuple[str, ...]] = {
    "daemon": ("+scan", *_TELLS),
    "worker": (*_TELLS, f"(+psubscribe +punsubscribe &{PIDBOX})"),
    "gateway": _TELLS,
    "flower": (f"(+publish &{PIDBOX})", f"(+psubscribe +punsubscribe &{EVENTS})"),
}


def role_user(role: Role) -> str:
    """The user of a role on the owner's own machines."""
    return f"{ROLE_PREFIX}{role}"


def machine_user(name: str) -> str:
    """The user of a machine that was let in."""
    return f"{MACHINE_PREFIX}{name}"


def is_name(text: str) -> bool:
    return re.fullmatch(NAME_PATTERN, text) is not None


def role_password(password: str, role: Role) -> str:
    """The password of a role's user, derived from the owner's: there is one secret to keep."""
    digest = hmac.digest(password.encode(), f"azq role {role}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def rules(user: str, roles: Iterable[Role]) -> list[str]:
    """What a user of these roles may do, as words of ACL SETUSER; its password is not among them."""
    wanted = tuple(roles)
    words = ["on", "clearselectors", "resetkeys", "resetchannels", *_COMMANDS.split()]
    words += dict.fromkeys(word for role in wanted for word in _MORE.get(role, ()))
    words += (f"{sign}~{glob}" for glob, sign in _patterns(user, wanted, TABLE).items())
    return [*words, *_selectors(user, wanted)]


def _selectors(user: str, roles: tuple[Role, ...]) -> Iterator[str]:
    """What writes, by type of the keys, then what ends keys."""
    for kind, commands in _WRITES.items():
        yield from _selector(commands, _patterns(user, roles, (key for key in TABLE if key.type == kind), "w"))
    yield from _selector(_ENDS, _patterns(user, roles, TABLE, "x"))
    if "daemon" in roles:
        yield from _selector("rename", _patterns(user, ("daemon",), TABLE, "x"))


def _selector(commands: str, patterns: Mapping[str, str]) -> Iterator[str]:
    if patterns:
        yield f"({' '.join(f'+{command}' for command in commands.split())} {' '.join(f'{sign}~{glob}' for glob, sign in patterns.items())})"


def hashed(password: str) -> str:
    """A password as ACL SETUSER takes it without learning it."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def line(user: str, words: Iterable[str]) -> str:
    """A line of an ACL file."""
    return f"user {user} {' '.join(words)}"


def role_users(password: str) -> dict[str, list[str]]:
    """The users of the roles, by name, as words of ACL SETUSER; `password` is the owner's."""
    return {role_user(role): [hashed(role_password(password, role)), *rules(role_user(role), [role])] for role in ROLES}


def file_text(password: str, before: str = "") -> str:
    """A server's ACL file: its owner, the roles as they are now, and the machines of the file before."""
    owner = line(OWNER, ["on", hashed(password), "~*", "&*", "+@all"])
    machines = [text for text in before.splitlines() if text.startswith(f"user {MACHINE_PREFIX}")]
    roles = [line(user, words) for user, words in role_users(password).items()]
    return "\n".join([owner, *roles, *machines, ""])


def rights_of(key: Key, role: Role) -> str:
    """Letters of a role's rights on a key, of those named for its user."""
    right = key.rights.get(role, "")
    return "rwx" if right == "own" or (role == "daemon" and "w" in right) else right


def glob_of(key: Key, user: str, role: Role) -> tuple[str, str]:
    """A key's pattern as Redis matches it, and which rights on it: of `%R`, `%W` and `` for both."""
    named = re.sub(r"<[^>]*>", f"{user}:*" if key.rights[role] == "own" else "*", key.pattern)
    letters = rights_of(key, role)
    return named.replace("{run}", "{*}"), "" if "r" in letters and "w" in letters else f"%{letters[0].upper()}"


def _patterns(user: str, roles: tuple[Role, ...], rows: Iterable[Key], letter: str = "") -> dict[str, str]:
    """Globs of those keys on which roles have a right, and which."""
    globs: dict[str, str] = {}
    for key in rows:
        for role in roles:
            if key.rights.get(role) and letter in rights_of(key, role):
                glob, sign = glob_of(key, user, role)
                globs[glob] = sign if globs.setdefault(glob, sign) == sign else ""
    return globs
