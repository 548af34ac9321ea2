"""Each process works at the brokers as the user of its role."""

from __future__ import annotations

from collections.abc import Callable

from azq.config import BrokerConfig, Config
from azq.config.addresses import password_in, with_user
from azq.errors import BrokerRefused, BrokerUnavailable
from azq.wire import acl
from azq.wire.connect import connect
from azq.wire.keys import Role

NO_USERS = (
    "all processes and machines share one password, which may do everything there: let azq keep users there "
    "(Redis 7 or Valkey; `azq fleet acl --apply`, or docs/5-operations.md)"
)


def as_role(config: Config, role: Role) -> Config:
    """The same settings with the addresses of a role's user; addresses of another user than the owner stay, and those without password."""
    return config.model_copy(update={"broker": _with_users(config.broker, lambda url: user_url(url, role))})


def knows_roles(config: Config) -> bool:
    """Whether the control plane keeps the roles' users, or the settings name a user that is not its owner."""
    url = user_url(config.broker.control_url, "daemon")
    if url == config.broker.control_url:
        return acl.user_in(url) != acl.OWNER
    try:
        connect(url, timeout_s=config.broker.connect_timeout_s).close()
    except BrokerRefused:
        return False
    except BrokerUnavailable:  # whoever connects next says so
        return True
    return True


def in_roles(config: Config) -> Callable[[Role], Config]:
    """The settings of each role, which are these where the brokers keep no users."""
    return (lambda role: as_role(config, role)) if knows_roles(config) else (lambda role: config)


def _with_users(broker: BrokerConfig, of: Callable[[str], str]) -> BrokerConfig:
    urls = {"control_url": of(broker.control_url), "data_url": of(broker.data_url), "data_urls": tuple(map(of, broker.data_urls))}
    return broker.model_copy(update=urls)


def user_url(url: str, role: Role) -> str:
    """The address of a server for a role's user, from its owner's; another is left as it is."""
    password = password_in(url)
    if not password or acl.user_in(url) != acl.OWNER:
        return url
    return with_user(url, acl.role_user(role), acl.role_password(password, role))
