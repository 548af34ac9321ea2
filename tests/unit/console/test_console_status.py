"""`azq status`: the brokers beside the runs, and a broker that is away as something to know of each run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from azq.config import load
from azq.console.show import show_status
from azq.host.brokers import Brokers
from azq.ledger import Ledger
from azq.wire.messages import RunRecord


def test_each_broker_is_shown_and_one_that_is_away_is_a_condition_of_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = load(None, [f'home="{tmp_path}"', "broker.data_shards=2"])

    def shown(run: str | None = None, as_json: bool = False) -> str:
        show_status(config, run, as_json)
        return capsys.readouterr().out

    with Brokers(config, tmp_path) as running:
        assert "no runs yet" in shown()
        Ledger(running.control).create_run(RunRecord("ttt", b"{}", {}, "", 0))
        (line,) = [line for line in shown().splitlines() if line.startswith("brokers")]
        assert all(f"  {plane} " in line for plane in ("control", "data", "data1"))
        assert "does not answer" not in line
        assert json.loads(shown("ttt", as_json=True))["conditions"] == []
        running._servers["data1"].stop()
        assert "data1 does not answer" in shown("ttt")
        ((condition,),) = (run["conditions"] for run in json.loads(shown(as_json=True)))
        assert re.search(r"^broker data1 does not answer: no broker at .*No such file", condition)
