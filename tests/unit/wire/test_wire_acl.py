"""Rights made from the table of keys: one role, several roles, one machine."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.wire import acl, keys


def rights(user: str, *roles: keys.Role) -> dict[str, str]:
    """Pattern -> `%R`, `%W` or both (empty), as the rules say."""
    words = [re.fullmatch(r"(%R|%W|)~(.*)", word) for word in acl.rules(user, roles)]
    return {found[2]: found[1] for found in words if found}


def test_a_role_has_its_rows_of_the_table_and_no_other():
    flower = rights("azq-flower", "flower")
    assert flower.pop("azq.selfplay.*") == flower.pop("azq.unacked") == "%R", "queues are there to be seen"
    rest = {pattern for pattern, sign in flower.items() if not sign and "celeryev" not in pattern and "pidbox" not in pattern}
    assert rest == {"azq._kombu.binding_deadlines", "azq.unacked_mutex"}
    worker = rights("azq-worker", "worker")
    assert worker["azq:{*}:run"] == "%R"
    assert worker["azq:{*}:samples"] == "%W"
    assert worker["azq:{*}:open"] == ""
    assert not {"azq:{*}:once:*", "azq:{*}:networks"} & set(worker)
    assert len(worker) == sum("worker" in row.rights for row in keys.TABLE)


def test_replies_are_read_by_their_user_alone_and_written_by_whoever_evaluates():
    assert rights("machine-box", "worker")["azq:reply:machine-box:*"] == ""
    assert rights("machine-box", "inference")["azq:reply:*"] == "%W"
    both = rights("machine-box", "worker", "inference")
    assert (both["azq:reply:machine-box:*"], both["azq:reply:*"]) == ("", "%W")


@given(st.sets(st.sampled_from(acl.ROLES), min_size=1))
def test_several_roles_have_the_rights_of_each_and_no_more(roles):
    either = rights("u", *sorted(roles))
    each = [rights("u", role) for role in roles]
    letters = {"": "RW", "%R": "R", "%W": "W"}
    for pattern, sign in either.items():
        assert set(letters[sign]) == {letter for one in each if pattern in one for letter in letters[one[pattern]]}
    assert set(either) == {pattern for one in each for pattern in one}


def test_nobody_may_learn_or_change_what_the_server_is():
    for role in acl.ROLES:
        words = acl.rules("u", [role])
        assert words[:5] == ["on", "clearselectors", "resetkeys", "resetchannels", "-@all"]
        assert {"-@admin", "-@dangerous", "-randomkey", "-client"} <= set(words)
        assert ("+scan" in words) == (role == "daemon")
        assert not any(word.startswith(("+acl", "+config", "+keys", "+@all", "+@dangerous", "+@admin", "nopass", ">")) for word in words)


@pytest.mark.parametrize("role", acl.ROLES)
def test_nothing_that_writes_can_give_a_key_another_type(role):
    words = acl.rules("u", [role])
    assert "+@write" not in words
    assert [word.startswith("(+rename ") for word in words].count(True) == (role == "daemon")
    types = {key.pattern: key.type for key in keys.TABLE if "w" in acl.rights_of(key, role)}
    assert set(types.values()) <= {"list", "set", "hash", "zset", "stream", "string", "none"} | ({"any"} if role == "daemon" else set())
    starts = {
        "list": "+lpush ",
        "set": "+sadd ",
        "hash": "+hset ",
        "zset": "+zadd ",
        "stream": "+xadd ",
        "string": "+set ",
        "none": "+setrange ",
    }
    for kind, start in starts.items():
        wanted = {acl.glob_of(key, "u", role)[0] for key in keys.TABLE if key.pattern in types and key.type == kind}
        found = [word for word in words if word.startswith(f"({start}")]
        assert len(found) == bool(wanted)
        assert {word.split("~")[1] for word in "".join(found).strip("()").split() if "~" in word} == wanted


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_a_roles_password_follows_from_the_owners_and_tells_nothing_of_it(one, other):
    made = {acl.role_password(one, role) for role in acl.ROLES}
    assert len(made) == len(acl.ROLES)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{43}", password) for password in made)
    assert (made == {acl.role_password(other, role) for role in acl.ROLES}) == (one == other)


def test_a_file_of_users_holds_no_password_and_keeps_machines_alone():
    before = "user default on nopass ~* +@all\nuser machine-box on #ab ~x\nuser azq-worker on nopass ~* +@all\nuser friend on nopass\n"
    text = acl.file_text("owner's-secret", before)
    lines = text.splitlines()
    assert [line.split()[1] for line in lines] == ["default", *map(acl.role_user, acl.ROLES), "machine-box"]
    assert "owner's-secret" not in text
    assert "nopass" not in text
    assert hashlib.sha256(b"owner's-secret").hexdigest() in lines[0]
    assert lines[-1] == "user machine-box on #ab ~x"
    assert acl.file_text("owner's-secret", text) == text


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("box", True), ("b-1_x", True), ("", False), ("-b", False), ("B", False), ("a" * 41, False), ("a b", False), ("a\n", False)],
)
def test_names_of_machines(text, is_name):
    assert acl.is_name(text) is is_name


def test_the_user_in_an_address():
    assert keys.user_in("redis://machine-box:pw@h:1/0") == "machine-box"
    assert keys.user_in("unix://:pw@/run/x.sock") == keys.user_in("redis://h:1/0") == "default"
