"""How an order comes to a host, and what becomes of answers that are none."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Any

import pytest

from azq.errors import HostError
from azq.host.join.member import MemberOrder
from azq.parts.cluster.description import Reaching
from azq.parts.cluster.members import Member
from azq.parts.cluster.reach import OrderRefused, Reach, words_for

HOST = Member("box", "ada@10.0.0.3", ("selfplay",), "/x", "/y")


def reaching(script: str, **more: Any) -> Reaching:
    """Hosts on which a Python script answers."""
    return Reaching(command=(sys.executable, "-c", script), **more)


def test_a_command_is_one_word_for_a_shell_or_words() -> None:
    assert words_for(Reaching(azq=("/opt/my azq",)), "ada@h")[-2:] == ["ada@h", "'/opt/my azq' cluster member"]
    words = words_for(Reaching(command=("ip", "netns", "exec", "{user}", "{address}", "{host}")), "ada@h")
    assert words == ["ip", "netns", "exec", "ada", "h", "ada@h", "azq", "cluster", "member"]
    assert shlex.split(words_for(Reaching(azq=("a b",)), "h")[-1]) == ["a b", "cluster", "member"]


def test_an_order_goes_over_standard_input_and_never_in_the_words() -> None:
    script = (
        "import sys, json; o = json.load(sys.stdin); print(json.dumps({'host': 'h', 'output': o['token'] + str('tok' in str(sys.argv))}))"
    )
    assert Reach(reaching(script)).ask(HOST, MemberOrder("look", token="tok")).output == "tokFalse"


@pytest.mark.parametrize(
    ("script", "kind", "said"),
    [
        ("import sys; print('azq: no such folder', file=sys.stderr); sys.exit(2)", OrderRefused, "^no such folder$"),
        ("import sys; print('Connection refused', file=sys.stderr); sys.exit(255)", HostError, r"Connection refused \(exit code 255\)"),
        ("print('Welcome to this host')", HostError, "no azq of this version: 'Welcome"),
        ('print(\'{"host": "h", "version": "0.0.1"}\')', OrderRefused, "azq 0.0.1 is installed there"),
        ("import time; time.sleep(60)", HostError, "no answer within"),
    ],
)
def test_what_is_no_answer_is_said(script: str, kind: type[HostError], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("azq.parts.cluster.reach.PATIENCE_S", 0.5 if "sleep" in script else 30.0)
    with pytest.raises(kind, match=said):
        Reach(reaching(script)).ask(HOST, MemberOrder("look", within_s=0.0))


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(HostError, match=r"no-such-ssh.*ssh\.command"):
        Reach(Reaching(command=("no-such-ssh",))).ask(HOST, MemberOrder("look"))


def test_all_are_asked_and_those_that_do_not_answer_say_why() -> None:
    script = "import sys, json; o = json.load(sys.stdin); sys.exit(9) if o['folder'] == 'bad' else print(json.dumps({'host': o['folder']}))"
    heard: dict[str, Any] = {}
    found = Reach(reaching(script)).ask_all({name: (HOST, MemberOrder("look", name)) for name in ("good", "bad")}, heard.__setitem__)
    assert found == heard
    assert getattr(found["good"], "host", "") == "good"
    assert found["bad"] == "it said nothing (exit code 9)"
    assert json.dumps(found["bad"])
