"""`ops/bench/gpu_first.py` and `gpu_rows.py`: what is measured stays, whatever fails, and the page's rows are made of it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_first as first
import gpu_machine
import gpu_rows
import pytest
from pydantic import TypeAdapter
from waiting import until

from azq.parts.lab.bench import plan, rig, suite
from azq.process.proc import status_of

ROOT = Path(__file__).parents[3]
FIGURE = 'import json; print(json.dumps({"rate": %d}), flush=True); '
WAY = {"first_s": 5.0, "rtc": "0"}


@pytest.fixture
def site(tmp_path: Path) -> Any:
    for name in ("wheels", "out", "scratch", "venv"):
        (tmp_path / name).mkdir()
    (tmp_path / "venv" / "wheels.sha256").write_text(first.wheels_hash(tmp_path / "wheels"))
    wheels, out, scratch, venv = (tmp_path / name for name in ("wheels", "out", "scratch", "venv"))
    return first.Site(wheels, out, scratch, venv, "cpu", first.SMALL)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts steps of these programs in the place of all."""

    def put(*, least_s: float = 0.0, most_s: float = 60.0, **programs: str) -> None:
        def step(name: str, program: str) -> Any:
            return first.Step(name, least_s, most_s, lambda *_: [first.Command([sys.executable, "-c", program])])

        monkeypatch.setattr(first, "STEPS", tuple(step(name, program) for name, program in programs.items()))

    return put


def results(site: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site.out / "results.json").read_text())
    return found["steps"]  # type: ignore[no-any-return]


def test_a_step_that_fails_keeps_its_figures_and_stops_no_other(site, steps):
    steps(bad=FIGURE % 1 + "import sys; sys.exit('no space left on device')", good=FIGURE % 2)
    assert first.work(site, (), 300.0) == 1
    kept = results(site)
    assert (kept["bad"]["state"], kept["bad"]["code"], kept["bad"]["figures"]) == ("failed", 1, [{"rate": 1}])
    assert kept["bad"]["said"] == f"no space left on device; {first.REMEDIES['no space left']}"
    assert (kept["good"]["state"], kept["good"]["figures"]) == ("done", [{"rate": 2}])
    assert len(list(site.out.iterdir())) <= 8


def test_a_step_whose_time_is_over_is_interrupted_and_keeps_what_it_measured(site, steps):
    steps(most_s=4.0, long=FIGURE % 1 + "import time; time.sleep(600)")
    assert first.work(site, (), 300.0) == first.OUT_OF_TIME
    assert (results(site)["long"]["state"], results(site)["long"]["figures"]) == ("cut", [{"rate": 1}])


def test_what_fails_alone_keeps_nothing_from_the_rest_of_its_step(site, monkeypatch):
    programs = (FIGURE % 1, "raise SystemExit(14)", "import time; time.sleep(600)", FIGURE % 4)
    commands = [first.Command([sys.executable, "-c", program], alone=3.0) for program in programs]
    monkeypatch.setattr(first, "STEPS", (first.Step("ways", 0.0, 60.0, lambda *_: commands),))
    assert first.work(site, (), 300.0) == 14
    assert results(site)["ways"]["figures"] == [{"rate": 1}, {"rate": 4}]


def test_a_step_that_does_not_heed_is_killed_with_what_it_started(site, steps, monkeypatch):
    monkeypatch.setattr(first, "GRACE_S", 1.0)
    deaf = (
        "import json, signal, subprocess, time; signal.signal(signal.SIGINT, signal.SIG_IGN); child = subprocess.Popen(['sleep', '600']); "
    )
    steps(most_s=4.0, deaf=deaf + "print(json.dumps({'pid': child.pid}), flush=True); time.sleep(600)")
    assert first.work(site, (), 300.0) == first.OUT_OF_TIME
    (figures,) = results(site)["deaf"]["figures"]
    until(lambda: not status_of(figures["pid"]), "the end of what the step had started")


def test_a_second_call_goes_on_with_what_is_missing_and_then_with_what_failed(site, steps, capsys):
    steps(one=FIGURE % 1, two="import sys; sys.exit(14)", three=FIGURE % 3)
    assert first.work(site, ("one", "two"), 300.0) == 14
    steps(one="raise AssertionError", two=FIGURE % 2, three=FIGURE % 3)
    (site.out / "results.json").unlink()  # where OUT is emptied in between, the environment has them
    assert [step.name for step in first.todo((), first.known(site)["steps"])] == ["three", "two"]
    assert first.work(site, (), 300.0) == 0
    assert [(entry["figures"], entry["state"]) for entry in results(site).values()] == [([{"rate": n}], "done") for n in (1, 2, 3)]
    steps(least_s=10.0, later=FIGURE % 4)
    assert first.work(site, (), 5.0 + first.GRACE_S) == first.OUT_OF_TIME
    assert "later: not begun, 5 s are left and it takes 10" in capsys.readouterr().out
    assert set(results(site)) == {"one", "two", "three"}


def test_figures_outlive_a_later_try_that_has_none(site, steps):
    steps(one=FIGURE % 1 + "raise SystemExit(3)")
    first.work(site, (), 300.0)
    steps(one="raise SystemExit(3)")
    assert first.work(site, (), 300.0) == 3
    assert results(site)["one"]["figures"] == [{"rate": 1}]


def test_without_a_device_nothing_else_is_begun(site, steps):
    steps(install="", devices="raise SystemExit(14)", networks=FIGURE % 1)
    assert first.work(site, (), 300.0) == 14
    assert set(results(site)) == {"install", "devices"}


@pytest.mark.parametrize(
    ("ways", "settings", "env"),
    [
        ([], (), {}),
        ([("plain", 2.0, {}), ("fused", 3.0, {}), ("compiled", 2.5, {})], ("inference.compile=false",), {}),
        ([("fused", 3.0, {}), ("fused", 4.0, {"rtc": "1"})], ("inference.compile=false",), {"TORCH_CUDNN_V8_API_RTC_ENABLED": "1"}),
        ([("compiled", 4.0, {}), ("fused", 3.0, {"first_s": 500.0})], ("inference.compile=true", "inference.fused=false"), {}),
    ],
)
def test_later_steps_run_the_network_in_the_way_that_was_fastest(ways, settings, env):
    figures = [{**WAY, "way": way, "evaluations_per_s": rate, **more} for way, rate, more in ways]
    chosen = first.Chosen.of([*figures, {"way": "fused", "failed": "no engine"}, {"fastest": "plain", "all_s": 3.0}])
    assert (chosen.settings, chosen.env) == (settings, env)


def test_what_may_spoil_figures_is_named_with_its_remedy():
    holder = "4711, python, 900 MiB"
    assert gpu_machine.problems({"holders": []}) == []
    (taken,) = gpu_machine.problems({"holders": [holder]})
    assert holder in taken
    assert taken.endswith("end it, or figures are of a part of it")


def test_every_step_is_made_of_commands_of_the_size_asked_for(site):
    for step in first.STEPS[1:]:
        commands = step.commands(site, first.Chosen(("inference.compile=true",)), 120.0)
        assert all(command.words[0] == site.python for command in commands)
        assert step.least_s <= step.most_s
    (words,) = [command.words for command in first.part("selfplay", 200)(site, first.Chosen(("inference.compile=true",)), 60.0)]
    asked = json.loads(words[-1])
    assert asked["overrides"] == ["worker.concurrency=2", "inference.compile=true"]
    assert (asked["num_simulations"], asked["device"], asked["case"]["batch"]) == (200, "cpu", 64)
    assert words[1:3] == ["-m", rig.__name__]
    assert getattr(importlib.import_module(words[3]), words[4]) is suite.measure_part
    case = TypeAdapter(plan.Case).validate_python(asked["case"])
    config = suite.config_of(case, asked["num_simulations"], asked["device"], case.batch, asked["overrides"])
    assert (config.worker.concurrency, config.inference.compile, config.network.channels) == (2, True, 8)


MEASURED: dict[str, list[dict[str, Any]]] = {
    "networks": [{"way": "plain", "evaluations_per_s": 2_600_000}, {"way": "fused", "evaluations_per_s": 4_000_000}, {"all_s": 9.0}],
    "stream": [{"batch": 8192, "stream_evaluations_per_s": 3_600_000, "bare_evaluations_per_s": 3_900_000}],
    "selfplay-200": [
        {
            "evaluations_per_s": 3e6,
            "games_per_s": 512.4,
            "simulations_per_s": 6e6,
            "inference_mean_batch": 8000.0,
            "gpu_busy": 0.93,
            "cpu_cores": 9.0,
        }
    ],
    "selfplay-32": [{"simulations_per_s": 4e6}],
    "pgx": [{"simulations_per_s": 2e6}, {"simulations_per_s": 4e6}],
    "learner": [{"first_steps_s": [4.2, 0.1, 0.1]}, {"samples_per_s": 800_000, "share_of_bare": 0.95}],
    "up": [{"ledger": {"finished": 900, "balanced": True}, "active_s": 60.0}],
    "strength": [{"seeds": [{"rows": [{"seconds": s, "loss": e} for s, e in ((30, 0.2), (90, 0.03), (200, 0.015))]}]}],
}


def test_figures_fill_the_rows_of_the_page():
    page = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    text, made = gpu_rows.filled(page, MEASURED)
    assert len(made) == len(gpu_rows.ROWS), "a row of the page has another name now"
    assert {cells[1].strip(): cells[3].strip() for cells in (line.split("|") for line in made)} == {
        "bare network, 5x128, batch 8,192": "4.00 M evaluations/s (plain 2.60, fused 4.00)",
        "stream / bare network": "0.900; 3.60 M evaluations/s",
        "self-play / bare network, 200 simulations": "0.750; 512 games/s",
        "the same / pgx + mctx, at 200 and 32 simulations": "3.00x, 1.00x",
        "mean batch / bucket; GPU busy; CPU cores": "0.98; 93%; 9.0",
        "learner / bare loop, 5x128, batch 16,384": "0.950; 800,000 samples/s, first step 4.2 s",
        "a minute of `azq up --preset sprint`: games/s; ledger": "15.0; balanced",
        "connect four to <= 4 %, <= 1 % errors at 100 simulations": "90 s; not within 200 s (1.5 %)",
    }
    assert [line.count("|") for line in text.splitlines()] == [line.count("|") for line in page.splitlines()]
    assert text.partition("## Several learners")[2] == page.partition("## Several learners")[2]
    assert gpu_rows.filled(page, {}) == (page, [])
