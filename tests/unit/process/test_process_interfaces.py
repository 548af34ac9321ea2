"""The interface and the address by which another machine is reached."""

from __future__ import annotations

import os

import pytest

from azq.process.interfaces import address_towards, interface_towards


@pytest.mark.skipif(not os.path.exists("/sys/class/net/lo"), reason="has no such interface")
def test_this_machine_reaches_itself_by_loopback():
    assert (address_towards("127.0.0.1"), interface_towards("127.0.0.1")) == ("127.0.0.1", "lo")


def test_a_name_that_leads_nowhere_has_neither():
    assert (address_towards("no-such-host.invalid"), interface_towards("no-such-host.invalid")) == ("", "")
