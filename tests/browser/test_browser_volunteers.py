"""A real gateway process and a real tab: what a browser plays with a trained network is searched again by the verifier, and agrees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browsing import launched
from gateway_doubles import Hall
from sharp_nets import sharp_bytes
from waiting import until
from worker_doubles import RUN

from azq.store import open_store
from azq.wire import keys
from azq.wire.codec import encode
from azq.wire.messages import WeightEvent


@pytest.mark.slow
def test_games_of_a_tab_pass_verification(broker: Any, tmp_path: Path) -> None:
    hall = Hall(broker, tmp_path)
    try:
        hall.open(evaluator="stream")
        sha256, uri = open_store("file", directory=tmp_path / "weights").put(sharp_bytes("mlp"))
        hall.bus.publish(keys.weights(RUN), encode(WeightEvent(RUN, 1, sha256, uri, 1, 0)))
        hall.start_gateway()
        with launched() as browser:
            page = browser.new_page()
            page.goto(f"http://127.0.0.1:{hall.port}/web/contribute/")
            page.locator("#go").click()
            until(lambda: hall.ledger.counts(RUN).finished >= 20, "twenty games that count")
            assert page.locator('[data-tile="refused"] b').text_content() == "0"
    finally:
        hall.close()
