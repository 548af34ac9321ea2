"""What log lines show of values that others wrote."""

from __future__ import annotations

import io

import pytest

from azq import logs


@pytest.mark.parametrize(
    ("method", "about", "sentence"),
    [
        ("info", {"plan": "inference on cpu"}, "device plan: inference on cpu\n"),
        ("warning", {"disk": "/data", "free_mb": 3}, "warning: device plan: disk /data, free mb 3\n"),
        ("info", {}, "device plan\n"),
    ],
)
def test_a_person_reads_sentences(method: str, about: dict[str, object], sentence: str) -> None:
    stream = io.StringIO()
    logs.setup("up", stream=stream, to_person=True)
    getattr(logs.get("test"), method)("device_plan", **about)
    assert stream.getvalue() == sentence


def test_no_value_writes_to_a_terminal_what_it_obeys() -> None:
    assert logs._mask(None, "", {"event": "unreadable", "place": "azq:beat:\x1b[31mx\u202e", "at": 1, "why": "héllo\n"}) == {
        "event": "unreadable",
        "place": "azq:beat:\\x1b[31mx\\u202e",
        "at": 1,
        "why": "héllo\n",
    }
