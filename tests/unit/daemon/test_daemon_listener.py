"""Beyond loopback the REST interface speaks TLS, unless somebody says that something else encrypts."""

from __future__ import annotations

import pytest

from azq.config import DaemonConfig
from azq.config.access import check_tls
from azq.errors import ConfigError


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.5", "first"])
def test_plaintext_beyond_loopback_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(ConfigError, match=r"daemon\.plaintext = true"):
        check_tls(DaemonConfig(host=host))
    check_tls(DaemonConfig(host=host, plaintext=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_may_speak_to_itself(host: str) -> None:
    check_tls(DaemonConfig(host=host))
