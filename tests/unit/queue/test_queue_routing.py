"""Routing by hardware tag, and the settings that keep Celery honest."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import TAG_PATTERN
from azq.errors import ConfigError, UnknownTagError
from azq.queue import (
    KNOWN_TAGS,
    celery_url,
    detect_tags,
    make_app,
    tags_of,
)
from azq.wire.kinds import Kind, queue_name, split_queue, task_name

tags = st.from_regex(re.compile(TAG_PATTERN), fullmatch=True).filter(lambda tag: "\n" not in tag)
kinds = st.sampled_from(Kind)


@given(kinds, tags)
def test_a_queue_says_kind_and_tag_and_nothing_else(kind, tag):
    assert split_queue(queue_name(kind, tag)) == (kind, tag)


@given(kinds, tags, kinds, tags)
def test_two_routes_never_meet(kind, tag, other_kind, other_tag):
    same = (kind, tag) == (other_kind, other_tag)
    assert (queue_name(kind, tag) == queue_name(other_kind, other_tag)) is same


@given(st.text(alphabet=string.printable, max_size=40))
def test_any_other_tag_is_refused(text):
    if re.fullmatch(TAG_PATTERN, text):
        assert queue_name("eval", text) == f"eval.{text}"
    else:
        with pytest.raises(UnknownTagError, match="hardware tag"):
            queue_name("eval", text)


@pytest.mark.parametrize("name", ["", "selfplay", "selfplay.", ".cpu", "train.cpu", "selfplay.CPU", "selfplay.cpu\n", "selfplay.a.b"])
def test_other_queues_are_refused(name):
    with pytest.raises(UnknownTagError):
        split_queue(name)


def test_tasks_are_named_by_kind():
    assert [task_name(kind) for kind in Kind] == ["azq.selfplay", "azq.eval"]
    with pytest.raises(UnknownTagError, match="'train' is none of"):
        task_name("train")


@pytest.mark.parametrize(
    ("host", "found"),
    [
        (("Linux", "x86_64", ()), ("cpu",)),
        (("Linux", "x86_64", ("cuda",)), ("cpu", "cuda")),
        (("Linux", "x86_64", ("cuda", "rocm")), ("cpu", "cuda", "rocm")),
        (("Darwin", "arm64", ()), ("cpu", "mps")),
        (("Darwin", "x86_64", ()), ("cpu",)),
    ],
)
def test_tags_of_hosts(host, found):
    assert tags_of(*host) == found


def test_this_host_has_tags():
    assert detect_tags()[0] == "cpu"
    assert set(detect_tags()) <= set(KNOWN_TAGS)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("unix://:pw@/run/azq.sock", "redis+socket://:pw@/run/azq.sock"),
        ("redis://:pw@host:6379/0", "redis://:pw@host:6379/0"),
        ("rediss://host:6379/0", "rediss://host:6379/0"),
    ],
)
def test_broker_urls_in_celerys_words(url, written):
    assert celery_url(url) == written


@pytest.mark.parametrize("url", ["", "host:6379", "amqp://:secret@host", "file:///x"])
def test_other_broker_urls_are_refused_without_their_password(url):
    with pytest.raises(ConfigError, match="control_url") as caught:
        celery_url(url)
    assert "secret" not in str(caught.value)


def test_the_app_declares_queues_of_known_and_own_tags():
    app = make_app("redis://localhost:1/0", tags=("jarvis", "cpu"))
    assert {queue.name for queue in app.conf.task_queues} == {f"{kind}.{tag}" for kind in Kind for tag in (*KNOWN_TAGS, "jarvis")}
    assert app.conf.task_create_missing_queues is False
    options = app.conf.broker_transport_options
    assert app.conf.task_soft_time_limit < app.conf.task_time_limit < options["visibility_timeout"]
    assert options["global_keyprefix"] == "azq."
    assert app.conf.accept_content == ["msgpack"]


@pytest.mark.parametrize("tag", ["CPU", "a b", "", "x" * 40])
def test_the_app_refuses_a_malformed_tag(tag):
    with pytest.raises(UnknownTagError):
        make_app("redis://localhost:1/0", tags=(tag,))
