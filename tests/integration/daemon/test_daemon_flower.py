"""Flower starts on azq's Celery app, on loopback, and asks for a password."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
from flower_site import PASSWORD, USER, flower
from waiting import until


def status_of(url: str, password: str = "") -> int:
    """What Flower answers; 0 while nobody listens."""
    try:
        return httpx2.get(url, auth=(USER, password) if password else None).status_code
    except httpx2.TransportError:
        return 0


def test_flower_serves_azqs_app_behind_a_password(broker: Any, tmp_path: Path) -> None:
    with flower(broker.control_url, tmp_path) as url:
        until(lambda: status_of(f"{url}/healthcheck"), "answer of Flower")
        assert status_of(f"{url}/workers") == status_of(f"{url}/api/workers") == 401
        assert status_of(f"{url}/workers", "wrong") == 401
        assert status_of(f"{url}/workers", PASSWORD) == status_of(f"{url}/broker", PASSWORD) == 200
    assert PASSWORD not in (tmp_path / "flower.log").read_text()
