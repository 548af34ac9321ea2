"""What log lines show of values that others wrote."""

from __future__ import annotations

from azq import logs


def test_no_value_writes_to_a_terminal_what_it_obeys() -> None:
    assert logs._mask(None, "", {"event": "unreadable", "place": "azq:beat:\x1b[31mx\u202e", "at": 1, "why": "héllo\n"}) == {
        "event": "unreadable",
        "place": "azq:beat:\\x1b[31mx\\u202e",
        "at": 1,
        "why": "héllo\n",
    }
