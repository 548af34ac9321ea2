"""Names that contributors choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.parts.volunteers.contributor_store import LONGEST_NAME, guest_name, is_guest, sounds_like, tidy, unfit


@given(st.text())
def test_what_is_kept_is_one_short_line_and_stays_as_it_is(text: str) -> None:
    name = tidy(text)
    assert len(name) <= LONGEST_NAME
    assert name == name.strip()
    assert name.isprintable() or not name
    assert tidy(name) == name


@pytest.mark.parametrize("name", ["Ann", "Ann Müller", "O'Neil", "J. R. R.", "Ольга", "김민준", "नेहा", "anna_2"])
def test_names_of_people_are_names(name: str) -> None:
    assert unfit(tidy(name)) == ""


@pytest.mark.parametrize(("name", "why"), [("<b>", "not <"), ("a@b.c", "not @"), ("...", "a letter or a digit"), ("☺", "not ☺")])
def test_what_is_none_says_why(name: str, why: str) -> None:
    assert why in unfit(tidy(name))


def test_names_that_differ_little_sound_alike() -> None:
    assert len({sounds_like(name) for name in ("Ann B", "annb", "ANN-B", "ａｎｎ b", "A.n.n.B")}) == 1
    assert is_guest(guest_name("0123456789ab"))
    assert is_guest("Guest")
