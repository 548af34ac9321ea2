"""Random histories against a model of where each game is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_histories import History, operations


@settings(max_examples=80, deadline=None)
@given(history=st.lists(operations, min_size=10, max_size=80))
def test_after_any_history_each_game_is_where_it_must_be(history):
    play = History()
    for operation in history:
        play.do(*operation)
    play.check()


@settings(max_examples=10, deadline=None)
@given(history=st.lists(operations, min_size=10, max_size=60))
def test_invariants_hold_after_every_step(history):
    play = History()
    for operation in history:
        play.do(*operation)
        play.check()
