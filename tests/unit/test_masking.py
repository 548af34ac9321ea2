"""Planted secrets show in no place where people read."""

from __future__ import annotations

import io
import json

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from azq import config, logs
from azq.cli.app import app
from azq.config.host import HostSections
from azq.errors import BrokerUnavailable
from azq.masking import masked, masked_settings
from daemon.api.conventions import problem

PLANTED = "planted-secret"
URL = f"redis://somebody:{PLANTED}@h:1/0"


@given(user=st.text(), password=st.text())
def test_no_password_of_a_url_is_left_in_a_setting(user: str, password: str) -> None:
    shown = masked_settings({"section": {"url": f"rediss://{user}:{password}{PLANTED}@h:1/0", "urls": [f"redis://:{PLANTED}@h"], "n": 3}})
    assert PLANTED not in str(shown)
    assert shown["section"]["url"] == "rediss://***@h:1/0"
    assert shown["section"]["n"] == 3


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no broker at redis://h:1/0 (refused); start it", "no broker at redis://h:1/0 (refused); start it"),
        ("no broker at redis://a:b@h:1/0, nor unix://:p@ss@/x.sock", "no broker at redis://***@h:1/0, nor unix://***@/x.sock"),
        ("redis://h:1/0?db=2&password=x y", "redis://h:1/0?db=2&password=*** y"),
        ("mail somebody@example.org", "mail somebody@example.org"),
    ],
)
def test_texts_keep_all_but_users_and_passwords(text: str, shown: str) -> None:
    assert masked(text) == shown


def planted() -> list[str]:
    """Every text of every host section as a URL with a password, and every secret."""
    found = [
        "daemon.token=" + PLANTED,
        f"notices.webhook=https://h/{PLANTED}",
        f'daemon.tokens.grafana.token="{PLANTED}2"',
        f'store.options.secret="{PLANTED}"',
    ]
    for section, group in HostSections.model_fields.items():
        for name, field in getattr(group.annotation, "model_fields", {}).items():
            values = {str: f'"{URL}"', tuple[str, ...]: f'["{URL}"]'}
            if field.annotation in values and name != "data_url" and (section, name) != ("inference", "device"):
                found.append(f"{section}.{name}={values[field.annotation]}")
    return found


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_no_section_of_the_settings_shows_a_secret(flags: list[str]) -> None:
    overrides = planted()
    assert sum(URL in text for text in overrides) >= 7
    done = CliRunner().invoke(app, ["config", "show", *flags, *(word for text in overrides for word in ("--set", text))])
    assert done.exit_code == 0, done.output
    assert "redis://***@h:1/0" in done.output
    assert PLANTED not in done.output


def test_settings_that_are_printed_by_mistake_show_no_broker() -> None:
    overrides = [text for text in planted() if text.startswith(("broker.", "store.", "daemon.token"))]
    assert PLANTED not in repr(config.load(overrides=overrides))


@pytest.mark.parametrize("form", ["", "json"])
def test_no_log_line_shows_one(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZQ_LOG", form)
    stream = io.StringIO()
    logs.setup("test", stream=stream)
    settings = config.load(overrides=planted())
    try:
        raise BrokerUnavailable(f"no broker at {settings.broker.control_url}")
    except BrokerUnavailable as error:
        logs.get("test").error("lost", url=URL, reason=str(error), exc_info=error)
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    said = stream.getvalue()
    assert PLANTED not in said
    assert "redis://***@h:1/0" in said
    assert "BrokerUnavailable" in said


def test_no_problem_document_shows_one() -> None:
    body = json.loads(bytes(problem(503, f"no broker at {URL}").body))
    assert body["detail"] == "no broker at redis://***@h:1/0"
