"""Keeps passwords out of what people read: settings, log lines, answers of the REST interface."""

from __future__ import annotations

import re
from typing import Any

_MASK = "***"
_IN_TEXT = re.compile(r"://\S*@")
_IN_VALUE = re.compile(r"://.*@", re.DOTALL)  # nothing but a URL: a password with a space in it ends at the last @ too
_IN_QUERY = re.compile(r"([?&](?:password|username)=)[^&\s]*")


def masked(text: str) -> str:
    """A text with user and password of every URL in it as ***."""
    return _IN_QUERY.sub(rf"\1{_MASK}", _IN_TEXT.sub(f"://{_MASK}@", text))


def masked_settings(value: Any) -> Any:
    """Plain nested values, each text that is a URL as `masked`."""
    if isinstance(value, dict):
        return {key: masked_settings(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked_settings(item) for item in value]
    return masked(_IN_VALUE.sub(f"://{_MASK}@", value)) if isinstance(value, str) else value
