"""What kinds of jobs there are, what belongs to each, and which queue carries one to a hardware tag. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

from azq.config import TAG_PATTERN
from azq.errors import UnknownTagError


class Kind(StrEnum):
    """A kind of job: it names the kind's queues (`selfplay.cpu`), its Celery task (`azq.selfplay`) and the role of who works on it."""

    SELFPLAY = "selfplay"
    EVAL = "eval"


#: Kinds that open games of their run: they want it running and its learner near, and when they fail in a row, so does the run.
MAKES_GAMES = frozenset({Kind.SELFPLAY})


BROWSER = "browser"  # hardware tag of what a gateway's tabs take on


def queue_name(kind: str, tag: str) -> str:
    """The queue of a job kind on a hardware tag, such as `selfplay.cpu`. Raises `UnknownTagError` for anything malformed."""
    if not re.fullmatch(TAG_PATTERN, tag):
        raise UnknownTagError(f"hardware tag {tag!r} is not lower-case letters, digits, - and _, at most 32; choose another")
    return f"{_checked(kind)}.{tag}"


def split_queue(name: str) -> tuple[Kind, str]:
    """Kind and tag of a queue; the inverse of `queue_name`. Raises `UnknownTagError` for anything else."""
    kind, _, tag = name.partition(".")
    queue_name(kind, tag)
    return Kind(kind), tag


def task_name(kind: str) -> str:
    """The Celery task of a job kind, such as `azq.selfplay`. Raises `UnknownTagError` for an unknown kind."""
    return f"azq.{_checked(kind)}"


def _checked(kind: str) -> Kind:
    try:
        return Kind(kind)
    except ValueError:
        raise UnknownTagError(f"job kind {kind!r} is none of {', '.join(Kind)}") from None
