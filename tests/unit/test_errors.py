"""Errors in one line."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from azq.errors import ConfigError, reason_of


class Mute(Exception):
    """Cannot even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError


@given(st.text(st.characters(), max_size=2000), st.integers(1, 500))
def test_a_reason_is_one_line_that_can_be_written(text: str, most: int) -> None:
    for error in (ValueError(text), ConfigError(text)):
        reason = reason_of(error, most)
        assert len(reason) <= most
        assert len(reason.splitlines()) <= 1
        reason.encode()


def test_foreign_errors_come_with_their_type() -> None:
    assert reason_of(ConfigError("no such game")) == "no such game"
    assert reason_of(KeyError("x")) == "KeyError: 'x'"
    assert reason_of(Mute()) == "Mute: says nothing"
