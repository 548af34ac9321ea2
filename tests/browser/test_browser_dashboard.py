"""The page as a browser renders it, over a planted run: what it shows is what was planted, and its buttons change the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import SHIFTS, Visit, visiting
from page_site import RUN, Site
from run_courses import plant_run
from waiting import until

from azq.ledger.types import RunState
from azq.status.results import StudyReport, TrialReport, keep_study


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = Site(tmp_path_factory.mktemp("site"))
    place.plant()
    place.start()
    yield place
    place.stop()


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Any]:
    with visiting(browser, site.url) as visit:
        yield visit


def unfold(visit: Visit) -> None:
    """Opens what is folded."""
    visit.page.locator("#throughput").wait_for()
    visit.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")


def tile(visit: Visit, name: str) -> str:
    return visit.text(f'[data-tile="{name}"] b')


@pytest.mark.parametrize("width", [390, 1350])
def test_a_run_leaves_room_for_what_comes_with_its_status(visit: Any, width: int) -> None:
    seen = visit("", SHIFTS, viewport={"width": width, "height": 823})
    seen.page.locator("#result .tile").first.wait_for()
    assert seen.shifted() < 0.1


def test_the_figures_are_those_that_were_planted_and_nothing_else_is_asked(visit: Any, site: Site) -> None:
    seen = visit()
    unfold(seen)
    seen.page.locator('[data-tile="games/s"]').wait_for()
    assert seen.text("#headline").startswith("Learning well: graded errors 35.0% → 6.0%")
    seen.page.locator(".newest-game .scene svg").wait_for()
    shown = {
        name: tile(seen, name) for name in ("games/s", "simulations/s", "evaluations/s", "mean batch", "network busy", "samples", "step")
    }
    assert shown == {
        "games/s": "43",
        "simulations/s": "182k",
        "evaluations/s": "88k",
        "mean batch": "2.05k",
        "network busy": "87 %",
        "samples": "1.23M",
        "step": "18.3k",
    }
    assert tile(seen, "network") == "5x64, from 4x48"
    assert (tile(seen, "weights"), tile(seen, "policy lag"), tile(seen, "samples/insert")) == ("v12", "1.0", "2.00")
    assert seen.text("#state") == "running"
    assert seen.text("#verdict") == "OK"
    counts = {
        name: seen.text(f'#ledger [data-count="{name}"] >> nth=0') for name in ("opened", "finished", "open", "inserted", "duplicates")
    }
    assert counts == {"opened": "8", "finished": "5", "open": "3", "inserted": "3", "duplicates": "1"}
    assert seen.text('#queues tr[data-key="selfplay.cuda"]').split()[:5] == ["selfplay.cuda", "1", "0", "4", "1"]
    assert seen.text('#queues tr[data-key="selfplay.cpu"]').split()[:5] == ["selfplay.cpu", "0", "1", "2", "1"]
    assert "39 / 0 / 1" in seen.text("#matches")
    assert "weights:12" in seen.text("#ratings")
    assert all(url.startswith(site.url) for url in seen.asked)
    assert seen.complaints == []


def test_a_run_that_is_not_there_is_named_instead_of_empty_charts(visit: Any) -> None:
    seen = visit("page/#/run/nosuch")
    seen.page.locator(".headline.bad", has_text="no run 'nosuch'").wait_for()
    assert seen.text("h1") == "nosuch"
    assert not seen.page.locator("#throughput").is_visible()


def test_workers_stand_by_host_and_the_late_one_is_marked(visit: Any) -> None:
    seen = visit()
    unfold(seen)
    late = seen.page.locator('[data-worker="selfplay@south:5"] .beat')
    late.wait_for()
    assert {"warn", "bad"} & set(late.get_attribute("class").split())
    hosts = seen.page.locator("#workers tr.host").all_inner_texts()
    assert "north" in hosts[0]
    assert "1 daemon, 1 eval, 1 learner, 1 selfplay" in hosts[0]
    assert "h200" in hosts[1]
    assert "busy 87 %" in seen.text('[data-worker="inference@south:4"]')
    seen.page.get_by_role("button", name="south").click()
    seen.page.locator('[data-worker="inference@south:4"]').wait_for(state="detached")


def test_charts_are_drawn_and_tell_values_under_the_pointer_and_by_key(visit: Any) -> None:
    seen = visit()
    unfold(seen)
    drawn = "[...document.querySelectorAll('#charts .series path')].filter((path) => path.getTotalLength() > 50).length"
    until(lambda: seen.page.evaluate(drawn) == 7, "line in each chart")
    gaps = seen.page.locator('[data-chart="Games/s"] .series path').get_attribute("d").count("M")
    assert gaps == 2  # the planted hour has one hole
    when = seen.page.locator(".legend .when")

    def one_moment() -> bool:  # what comes late may move the page away under a pointer that rests
        seen.page.locator('[data-chart="Network busy"] svg').hover()
        return len({text for text in when.all_inner_texts() if ":" in text}) == 1 and when.count() >= 6

    until(one_moment, "same moment in all charts")
    spent = seen.page.locator('[data-chart="Learner time"]')
    assert spent.locator(".area").count() == 8
    assert "backward50 %" in spent.locator(".legend").inner_text().replace("\n", "")
    assert "rest20 %" in spent.locator(".legend").inner_text().replace("\n", "")
    elo = seen.page.locator('[data-chart="Elo"] svg')
    elo.focus()
    elo.press("ArrowLeft")
    assert "v11" in seen.text('[data-chart="Elo"] .legend')
    graded = seen.page.locator('[data-chart="Graded errors"]')
    assert "v11" in graded.locator(".legend").inner_text()


def test_pause_and_resume_change_the_ledger_and_a_refusal_is_shown(visit: Any, site: Site) -> None:
    seen = visit()
    seen.page.get_by_role("button", name="Pause").click()
    seen.page.locator("#state", has_text="paused").wait_for()
    assert site.ledger.run(RUN).state is RunState.PAUSED
    seen.page.get_by_role("button", name="Enqueue…").click()
    seen.page.get_by_role("button", name="Enqueue", exact=True).click()
    problem = seen.page.locator(".problem", has_text="paused")
    problem.wait_for()
    assert "resume it first" in problem.inner_text()
    seen.page.get_by_role("button", name="Cancel").click()
    seen.page.get_by_role("button", name="Resume").click()
    seen.page.locator("#state", has_text="running").wait_for()
    assert site.ledger.run(RUN).state is RunState.RUNNING


def test_a_match_is_enqueued_with_what_the_form_says(visit: Any, site: Site) -> None:
    before = {view.job.job_id for view in site.ledger.jobs(RUN)}
    seen = visit()
    seen.page.get_by_role("button", name="Enqueue…").click()
    seen.page.get_by_label("Evaluation match").check()
    seen.page.get_by_role("textbox", name="Second").fill("random")
    seen.page.get_by_role("button", name="Enqueue", exact=True).click()
    seen.page.locator("#answer", has_text="waits in eval.cpu").wait_for()
    (job,) = [view.job for view in site.ledger.jobs(RUN) if view.job.job_id not in before]
    assert (job.kind, job.tag, job.games) == ("eval", "cpu", 40)


def test_the_viewer_steps_through_a_recorded_game(visit: Any, site: Site) -> None:
    seen = visit(f"page/#/games/{RUN}")
    seen.page.locator("#board .scene svg").wait_for()  # the newest, unasked
    assert seen.page.locator("#games a[aria-current]").inner_text().startswith("#60")
    discs = seen.page.locator("#board [data-disc]")
    assert (discs.count(), tile(seen, "Ply").split()[0]) == (0, "0")
    plays = tile(seen, "Plays")
    assert plays in seen.text("#targets")
    seen.page.keyboard.press("ArrowRight")
    seen.page.keyboard.press("ArrowRight")
    assert (discs.count(), tile(seen, "Ply").split()[0]) == (2, "2")
    assert seen.text("#moves .played").startswith("column ")
    seen.page.get_by_role("button", name="One ply back").click()
    assert discs.count() == 1
    seen.page.keyboard.press("End")
    moves = seen.page.locator("#moves button").count()
    assert discs.count() == moves
    assert tile(seen, "Result") in ("+1 : -1", "-1 : +1", "0 : 0")
    seen.page.locator('[data-chart="Value for Red"] svg').click(position={"x": 50, "y": 50})
    assert int(tile(seen, "Ply").split()[0]) < moves / 2
    seen.page.get_by_role("button", name="Older games").click()
    seen.page.locator("#games a", has_text="#1 ").first.wait_for()
    assert seen.complaints == []


def test_colours_follow_the_system_until_a_person_chooses(visit: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(color_scheme="light"), visit(color_scheme="dark")
    assert light.page.evaluate(ground) != dark.page.evaluate(ground)
    light.page.locator("#theme").click()
    light.page.locator("#theme").click()
    assert light.page.evaluate(ground) == dark.page.evaluate(ground)


def test_a_daemon_that_goes_away_is_told_and_asked_again(visit: Any, site: Site) -> None:
    seen = visit()
    unfold(seen)
    seen.page.locator("#link", has_text="Live").wait_for()
    site.stop()
    try:
        seen.page.locator("#link", has_text="Daemon away, retrying").wait_for()
        assert tile(seen, "games/s") == "43"  # what was known stays in sight
    finally:
        site.start()
    seen.page.locator("#link", has_text="Live").wait_for()


def test_a_token_is_asked_for_once_and_sent_from_then_on(browser: Any, tmp_path: Path) -> None:
    guarded = Site(tmp_path, token="long-secret-1")
    guarded.start()
    seen = Visit(browser, guarded.url)
    try:
        field = seen.page.locator("#token")
        field.fill("wrong-secret-1")
        seen.page.get_by_role("button", name="Sign in").click()
        seen.page.locator("#ask-problem", has_text="asks for a token").wait_for()
        field.fill("long-secret-1")
        seen.page.get_by_role("button", name="Sign in").click()
        seen.page.locator("#state", has_text="running").wait_for()
        seen.page.reload()
        seen.page.locator("#state", has_text="running").wait_for()
        beside = seen.context.new_page()  # takes it from the tab that knows it
        beside.goto(guarded.url)
        beside.locator("#state", has_text="running").wait_for()
        seen.page.route("**/v1/runs", lambda route: route.fulfill(status=401, json={"detail": "asks for a token"}), times=1)
        field.fill("long-secret-1")  # in mid-run
        seen.page.get_by_role("button", name="Sign in").click()
        seen.page.locator("#ask").wait_for(state="detached")
        assert not any("secret" in url for url in seen.asked)
    finally:
        seen.context.close()
        guarded.stop()


@pytest.mark.parametrize("path", ["", "page/"])
def test_the_link_that_azq_up_prints_brings_the_token_and_leaves_it_nowhere(browser: Any, tmp_path: Path, path: str) -> None:
    guarded = Site(tmp_path, token="long-secret-1")
    guarded.start()
    seen = Visit(browser, f"{guarded.url}/{path}#token=long-secret-1")
    try:
        seen.page.locator("#state", has_text="running").wait_for()
        assert "secret" not in seen.page.url
        assert seen.page.evaluate("Object.values(localStorage).concat(document.cookie).join()").find("secret") < 0
        assert not seen.page.locator("#ask").is_visible()
        seen.page.get_by_role("button", name="Pause").click()
        seen.page.locator("#state", has_text="paused").wait_for()
        seen.page.goto(f"{guarded.url}/page/#token=another-secret")  # in the same tab, where the page is loaded already
        seen.page.locator("#ask").wait_for()
        assert "secret" not in seen.page.url
        assert not any("secret" in url.partition("#")[0] for url in seen.asked)
    finally:
        seen.context.close()
        guarded.stop()


def test_a_form_on_a_page_of_another_site_changes_nothing(browser: Any, tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.start()
    context = browser.new_context()
    try:
        page = context.new_page()
        page.route("http://evil.example/", lambda route: route.fulfill(body="<form method=post></form>", content_type="text/html"))
        page.goto("http://evil.example/")
        with page.expect_response(lambda answer: answer.url.startswith(site.url)) as refused:
            page.evaluate("url => { document.forms[0].action = url; document.forms[0].submit(); }", f"{site.url}/v1/runs/{RUN}/pause")
        assert refused.value.status == 403
        assert site.ledger.run(RUN).state is RunState.RUNNING
    finally:
        context.close()
        site.stop()


def test_runs_of_a_game_are_drawn_over_each_other(visit: Any, site: Site) -> None:
    for name, settings in (("quick", {"speed": 2.0}), ("slow", {"num_simulations": 32}), ("discs", {"game": "othello"})):
        plant_run(site.ledger, site.bus, name, **settings)
    seen = visit("page/#/runs/quick")
    seen.page.get_by_label("Compare quick").wait_for()
    assert seen.page.get_by_label("Compare quick").is_checked()
    seen.page.get_by_label("Compare discs").check()
    until(lambda: seen.page.url.endswith("#/runs/quick%2Cdiscs/minutes"), "address")
    assert not seen.page.locator("#common").is_visible(), "they play another game"
    seen.page.get_by_label("Compare discs").uncheck()
    seen.page.get_by_label("Compare slow").check()
    seen.page.locator("#settings td", has_text="search.num_simulations").wait_for()
    seen.page.get_by_role("button", name="steps").click()
    seen.page.locator("#common th", has_text="steps").wait_for()
    assert seen.page.url.endswith("#/runs/quick%2Cslow/steps")
    errors = seen.page.locator('[data-chart="Graded errors"]')
    assert all("L" in path for path in errors.locator(".series path").evaluate_all("all => all.map((one) => one.getAttribute('d'))"))
    assert seen.page.locator("#common tbody tr").count() == 4
    assert "+0.0 % (+0.0 % … +0.0 %)" in seen.page.locator("#graded tbody").inner_text()
    seen.page.locator("#samples", has_text="slow: too few games").wait_for()
    seen.page.go_back()
    until(lambda: seen.page.url.endswith("minutes"), "the axis before")
    names = seen.page.locator("#all-runs tbody tr")
    seen.page.get_by_role("button", name="Run", exact=True).click()
    assert [name.split()[0] for name in names.all_inner_texts()] == ["discs", RUN, "quick", "slow"]
    seen.page.get_by_text("Columns", exact=True).click()
    seen.page.get_by_label("search.num_simulations").check()
    seen.page.get_by_label("Active").uncheck()
    seen.page.reload()  # order and choice last
    seen.page.get_by_role("button", name="search.num_simulations").click()
    assert seen.page.locator("#all-runs thead").inner_text().split()[-1] == "▾"
    assert "Active" not in seen.page.locator("#all-runs thead").inner_text()
    assert names.last.inner_text().split()[0] == "slow", "it has the fewest"
    seen.page.get_by_label("Filter runs").fill("othello")
    assert names.count() == 1
    assert seen.complaints == []
    for name in ("quick", "slow", "discs"):  # the other pages of this site know of one run
        site.ledger.set_run_state(name, RunState.FINISHED)
        site.ledger.delete_run(name)


def test_a_studys_trials_are_lines_and_rows_and_pointing_at_one_shows_the_other(visit: Any, site: Site) -> None:
    rows = [
        TrialReport(
            number=number,
            state="running" if number == 11 else "pruned" if number % 5 == 4 else "complete",
            value=0.1 + 0.3 * abs(math.log10(10**-4 * 1.5**number) + 2.5),
            settings={
                "learner.learning_rate": 10**-4 * 1.5**number,
                "search.num_simulations": 32 * (1 + number % 3),
                "network.kind": "resnet",
            },
        )
        for number in range(12)
    ]
    shares = {"learner.learning_rate": 0.9, "search.num_simulations": 0.1}
    log, rates = ["learner.learning_rate"], {"study": "rates", "game": "connect_four", "metric": "errors", "until": "games=900"}
    keep_study(site.bus, StudyReport(best=rows[3], importances=shares, trials=rows, log=log, **rates))  # type: ignore[arg-type]
    seen = visit("page/#/runs")
    seen.page.get_by_role("link", name="rates").click()
    seen.page.locator("#parallel polyline").nth(11).wait_for(state="attached")
    assert seen.page.locator("#parallel polyline.good").count() == 4
    assert "90 %" in seen.text("#importances")
    ranks = seen.page.locator("#trials tbody tr td:first-child")
    assert ranks.all_inner_texts() == [str(rank) for rank in range(1, 13)]
    seen.page.locator("#trials").get_by_role("button", name="network.kind").click()
    seen.page.locator("#trials tbody tr").first.hover()
    assert seen.page.locator("#parallel polyline.pointed").count() == 1
    assert seen.complaints == []


NOTED = """
window.told = [];
let permission = "default";
window.Notification = class {
  constructor(title, { body }) { window.told.push([title, body]); }
  static get permission() { return permission; }
  static async requestPermission() { return (permission = "granted"); }
};
"""


def test_a_run_that_ends_is_told_by_the_browser_once_somebody_asked_for_it(visit: Any, site: Site) -> None:
    seen = visit()
    seen.page.add_init_script(NOTED)
    seen.page.reload()
    seen.page.get_by_role("button", name="Notify me").click()
    seen.page.get_by_role("button", name="Notify me").wait_for(state="detached")
    seen.page.locator("#state", has_text="running").wait_for()
    site.ledger.set_run_state(RUN, RunState.FINISHED, "60 minutes are over")
    until(lambda: seen.page.evaluate("window.told") == [["first finished", "60 minutes are over"]], "notice")
    site.ledger.set_run_state(RUN, RunState.RUNNING, "")
    assert seen.complaints == []
