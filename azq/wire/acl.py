"""The rights of each user at a broker, made from the table of keys. Pure.

A role may touch the keys that its code reads or writes, and no command that is about the server itself. Every plane gets the same users:
a key of the other plane does not exist there. Redis 7, Valkey; older servers cannot tell reading from writing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from azq.wire.keys import AZQ_ROLES, CELERY_PREFIX, TABLE, Key, Role

SINCE = (7, 0)  # of Redis; Valkey tells such a version too
ROLES: tuple[Role, ...] = (*AZQ_ROLES, "flower")
OWNER = "default"  # who has the password of a server
ROLE_PREFIX, MACHINE_PREFIX = "azq-", "machine-"  # of users' names: an operator's own are others
NAME_PATTERN = r"[a-z0-9][a-z0-9_-]{0,39}"

# Of the data commands none that looks at keys without naming them; of connections only what a client says of itself.
_COMMANDS = (
    "-@all +@read +@write +@transaction +@connection -@admin -@dangerous -scan -randomkey -dbsize -client +client|setinfo +client|setname "
    "+eval +evalsha +script|load +script|exists +time +info"
)
# Celery's channels. Who listens to a pattern of them must be given that very pattern; what is in brackets is judged by itself.
PIDBOX, EVENTS = f"{CELERY_PREFIX}/0.celery.pidbox", f"{CELERY_PREFIX}/0.celeryev/*"
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


def user_in(url: str) -> str:
    return urlsplit(url).username or OWNER


def is_name(text: str) -> bool:
    return re.fullmatch(NAME_PATTERN, text) is not None


def role_password(password: str, role: Role) -> str:
    """The password of a role's user, which who has the owner's can tell and nobody else: there is one secret to keep."""
    digest = hmac.digest(password.encode(), f"azq role {role}".encode(), "sha256")
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def rules(user: str, roles: Iterable[Role]) -> list[str]:
    """What a user of these roles may do, as words of ACL SETUSER; its password is not among them."""
    wanted = tuple(roles)
    words = ["on", "clearselectors", "resetkeys", "resetchannels", *_COMMANDS.split()]
    words += dict.fromkeys(word for role in wanted for word in _MORE.get(role, ()))
    return words + [f"{sign}~{glob}" for glob, sign in _patterns(user, wanted).items()]


def hashed(password: str) -> str:
    """A password as ACL SETUSER takes it without learning it."""
    return f"#{hashlib.sha256(password.encode()).hexdigest()}"


def line(user: str, words: Iterable[str]) -> str:
    """A line of an ACL file."""
    return f"user {user} {' '.join(words)}"


def owner_line(password: str) -> str:
    """Who may do everything, as a line of an ACL file."""
    return line(OWNER, ["on", hashed(password), "~*", "&*", "+@all"])


def role_users(password: str) -> dict[str, list[str]]:
    """The users of the roles, by name, as words of ACL SETUSER; `password` is the owner's."""
    return {role_user(role): [hashed(role_password(password, role)), *rules(role_user(role), [role])] for role in ROLES}


def file_text(password: str, before: str = "") -> str:
    """A server's ACL file: its owner, the roles as they are now, and the machines of the file before."""
    machines = [text for text in before.splitlines() if text.startswith(f"user {MACHINE_PREFIX}")]
    roles = [line(user, words) for user, words in role_users(password).items()]
    return "\n".join([owner_line(password), *roles, *machines, ""])


def glob_of(key: Key, user: str, right: str) -> tuple[str, str]:
    """A key's pattern as Redis matches it, and which rights on it: of `%R`, `%W` and `` for both."""
    named = re.sub(r"<[^>]*>", f"{user}:*" if right == "own" else "*", key.pattern)
    return named.replace("{run}", "{*}"), {"r": "%R", "w": "%W"}.get(right, "")


def _patterns(user: str, roles: tuple[Role, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key in TABLE:
        for role in roles:
            if right := key.rights.get(role):
                glob, sign = glob_of(key, user, right)
                found[glob] = sign if found.setdefault(glob, sign) == sign else ""
    return found
