from azq.findings import Change, Finding, conclusion

OK = Finding("home", "ok", "can be written to")


def test_the_conclusion_counts_the_checks_and_names_those_that_do_not_pass() -> None:
    assert conclusion([OK, OK]) == "All 2 checks passed."
    text = conclusion([OK, Finding("clock", "warn", "4 s ahead"), Finding("rest", "fail", "no certificate")])
    assert text == "3 checks: 1 passed, 1 failed (rest), 1 with a warning (clock)."


def test_a_finding_names_the_setting_to_change() -> None:
    line = str(Finding("settings.machine.margin_s", "fail", "too short", Change("machine.margin_s", 1, 60)))
    assert line == "fail settings.machine.margin_s too short; set machine.margin_s = 60 (now 1)"
