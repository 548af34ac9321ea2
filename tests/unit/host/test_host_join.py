"""Joining: tokens stay hidden, addresses are seen from here, files of operators are kept, services fit the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from azq.config import Config, load
from azq.errors import ConfigError, StateConflict, UnknownTagError
from azq.host.devices import Machine
from azq.host.fronts import Listen, parse_listen
from azq.host.join import checks
from azq.host.join import plan as plans
from azq.host.join.join import Wish, join, training_of
from azq.host.join.plan import Membership, Service, Training, check_training, parse_roles, plan_files, services
from azq.host.join.token import Token, login_of, parse_token, read_token, with_login
from azq.host.machine_end import UNITS
from azq.host.systemd.install import Places
from azq.host.systemd.steps import RunCommand, Step, WriteFile, carry_out
from azq.process.cards import Gpu
from azq.wire.messages import Fleet

GIB = 1 << 30
CARDS = tuple(Gpu(f"cuda:{number}", free_bytes=8 * GIB) for number in range(2))
PC = Machine("pc", cores=8, memory_bytes=32 * GIB, tags=("cpu",))
GPU = Machine("gpu", cores=16, memory_bytes=64 * GIB, tags=("cpu", "cuda"), gpus=CARDS)
MEMBER = Membership("redis://:s3cret@first:6379/0", ("redis://:s3cret@first:6380/0",), "redis", 20.0, 5.0, ("box",))


def fleet(data_url: str) -> Fleet:
    return Fleet("0.1.0", "redis://first:6379/0", data_url, "redis", 20.0, 2.0, 8.0, 0)


NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789_-", min_size=1, max_size=30)
SECRETS = st.text("ABCabc012_-", min_size=1, max_size=40)
FINGERPRINTS = st.just("") | st.text("0123456789abcdef", min_size=64, max_size=64)


@given(st.text(min_size=1, max_size=30), st.just("") | NAMES)
def test_user_and_password_survive_the_url(password: str, user: str) -> None:
    assert login_of(with_login("redis://first:6379/0", Token(password, user=user))) == Token(password, user=user)
    assert login_of(with_login("redis://:own@first:6379/0", Token())) == Token("own")


@given(NAMES, SECRETS, FINGERPRINTS)
def test_a_token_is_read_as_it_was_written(user: str, secret: str, fingerprint: str) -> None:
    token = Token(secret, user=user, fingerprint=fingerprint)
    assert str(token) == f"{user}.{secret}.{fingerprint}"
    assert parse_token(str(token)) == token


@given(st.text().filter(lambda text: "." not in text))
def test_a_text_without_dots_is_a_password_of_the_default_user(text: str) -> None:
    assert parse_token(text) == Token(text)
    assert str(parse_token(text)) == text


@pytest.mark.parametrize(
    "text", ["box.secret", "box.secret.abc", ".secret.", "box..", "Box.s.", f"box.s.{'0' * 63}", f"box.s.{'G' * 64}", "a.b.c.d"]
)
def test_a_token_that_was_damaged_is_named_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match="copy it whole") as caught:
        parse_token(text)
    assert text not in str(caught.value)


def test_two_different_passwords_are_one_too_many() -> None:
    for token in (Token("two"), Token("one", user="box")):
        with pytest.raises(ConfigError, match="another user or password") as caught:
            with_login("redis://:one@first:6379/0", token)
        assert "one@" not in str(caught.value)
    assert with_login("redis://:one@first:6379/0", Token("one")) == "redis://:one@first:6379/0"


@pytest.mark.parametrize("url", ["first:6379", "http://first", "redis://", "redis://first:port/0", ""])
def test_what_is_no_broker_address_is_named(url: str) -> None:
    with pytest.raises(ConfigError, match="redis"):
        with_login(url, Token("token"))


def test_where_a_token_comes_from(tmp_path: Path) -> None:
    environment = {"AZQ_JOIN_TOKEN": "inherited"}
    assert read_token("", None, environment) == Token("inherited")
    assert environment == {}  # children do not inherit it
    assert read_token("given", None, {}) == Token("given", exposed=True)
    (tmp_path / "token").write_text("filed\n")
    assert read_token("", tmp_path / "token", {"AZQ_JOIN_TOKEN": "inherited"}) == Token("filed")


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read"), ("", "nothing"), ("two words", "more than one word")])
def test_a_token_file_that_holds_no_token_is_named(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "token").write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_token("", tmp_path / "token", {})


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        ("redis://data:6380/0", "redis://data:6380/0"),
        ("redis://127.0.0.1:6380/0", "redis://first:6380/0"),
        ("redis://0.0.0.0:6380/0", "redis://first:6380/0"),
        ("redis://localhost:6380/1", "redis://first:6380/1"),
    ],
)
def test_the_data_plane_is_seen_from_here(told: str, seen: str) -> None:
    assert checks.choose_data_urls("", fleet(told), "redis://:pw@first:6379/0") == [seen]
    assert checks.choose_data_urls("redis://mine:1/0", fleet(told), "redis://first:6379/0") == ["redis://mine:1/0"]


def test_every_data_plane_of_a_fleet_is_kept_in_its_order_and_read_back(tmp_path: Path) -> None:
    told = Fleet(
        "0.1.0", "redis://first:1/0", "redis://127.0.0.1:2/0", "redis", 20.0, 2.0, 8.0, 0, ("redis://127.0.0.1:2/0", "redis://b:3/0")
    )
    assert checks.choose_data_urls("", told, "redis://first:1/0") == ["redis://first:2/0", "redis://b:3/0"]
    urls = ("redis://:s3cret@first:2/0", "redis://:s3cret@b:3/0")
    member = Membership("redis://:s3cret@first:1/0", urls, "redis", 20.0, 5.0)
    assert "s3cret" not in member.settings()
    (tmp_path / "azq.toml").write_text(member.settings())
    (tmp_path / "azq.env").write_text(member.secrets())
    for found in (load(tmp_path / "azq.toml", member.overrides()), _as_a_service(tmp_path)):
        assert found.broker.data_planes == urls
        assert (found.worker.heartbeat_s, found.worker.heartbeat_life_s) == (5.0, 20.0)
    (tmp_path / "azq.env").write_text(member.secrets().replace("first", "other"))
    with pytest.raises(StateConflict, match="redis://b:3/0") as caught:
        plan_files(tmp_path, member, force=False)
    assert "s3cret" not in str(caught.value)


def test_a_machine_is_told_what_it_costs(tmp_path: Path) -> None:
    wish = Wish("redis://first:6379/0", kind="g5.48xlarge", per_hour=0.12)
    (tmp_path / "azq.toml").write_text(replace(MEMBER, own=wish.own).settings())
    assert load(tmp_path / "azq.toml").machine.facts() == {"machine_kind": "g5.48xlarge", "per_hour": 0.12}
    (tmp_path / "azq.toml").write_text(replace(MEMBER, own=Wish("", per_hour=0.0).own).settings())
    assert load(tmp_path / "azq.toml").machine.facts() == {"machine_kind": "", "per_hour": 0.0}
    assert "[machine]" not in replace(MEMBER, own=Wish("").own).settings()
    with pytest.raises(ConfigError, match=r"in its own azq\.toml what it costs"):
        join(replace(wish, roles="broker"), lambda line: None, lambda joined: None)


def _as_a_service(folder: Path) -> Config:
    """The settings as systemd hands them over, with the secrets as a credential."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CREDENTIALS_DIRECTORY", str(folder))
        return load(folder / "azq.toml")


@pytest.mark.parametrize(("told", "remedy"), [(None, "start it"), (fleet(""), "broker.public_data_url")])
def test_a_data_plane_that_nobody_tells_is_asked_for(told: Fleet | None, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        checks.choose_data_urls("", told, "redis://first:6379/0")


@pytest.mark.parametrize(("ahead_s", "verdict", "words"), [(0.5, "ok", "0.50"), (3.0, "warn", "ahead of"), (-90.0, "warn", "behind")])
def test_clocks_that_differ_are_told(ahead_s: float, verdict: str, words: str) -> None:
    check = checks.judge_clock(1000.0, 1000.0 + ahead_s)
    assert check.severity == verdict
    assert words in check.evidence


def test_services_fit_the_machine() -> None:
    assert [service.unit for service in services(PC, parse_roles("", PC), ("box",))] == [
        "azq-worker@selfplay.cpu:selfplay.box.service",
        "azq-worker@eval.cpu:eval.box.service",
    ]
    assert services(GPU, parse_roles("", GPU))[:2] == (Service("inference", "cuda:0"), Service("inference", "cuda:1"))
    alone, both = ("selfplay",), ("inference", "selfplay")
    assert [services(*given)[-1].concurrency for given in ((PC, alone), (GPU, both), (PC, both))] == [8, 14, 4]
    assert services(Machine("small", 8, 2 * GIB, ("cpu",)), alone)[0].concurrency == 1
    assert services(PC, ("selfplay",), (), 3)[0].command == ("worker", "--queues", "selfplay.cpu", "--concurrency", "3")


@pytest.mark.parametrize("text", ["teacher", "selfplay,store", ","])
def test_roles_that_do_not_exist_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="selfplay, eval, inference"):
        parse_roles(text, PC)


def test_who_trains_has_a_service_a_run_and_its_place_among_the_ranks() -> None:
    apart = services(PC, ("learner", "daemon"), training=Training(("a", "b")))
    assert [(service.unit, service.sizing()) for service in apart] == [
        ("azq-daemon.service", {}),
        ("azq-learner@a.service", {}),
        ("azq-learner@b.service", {}),
    ]
    (rank,) = services(PC, ("rank",), training=Training(("a",), 2, "first", "eth0"))
    assert rank.command == ("learner", "--run", "a")
    place = {"RANK": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "first", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "eth0"}
    assert rank.sizing() == place
    assert str(rank) == "azq-learner@a, rank 2"
    assert services(PC, ("selfplay",), training=Training(("a",))) == services(PC, ("selfplay",))


@pytest.mark.parametrize(
    ("roles", "rank", "said"),
    [(("rank",), None, "--rank 1"), (("rank",), 0, "learner's"), (("learner",), 1, "--rank 1"), (("selfplay",), 0, "--rank 0")],
)
def test_a_place_that_does_not_fit_the_roles_is_named(roles: tuple[str, ...], rank: int | None, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_training(roles, rank)


def test_a_learner_and_ranks_of_one_machine_are_the_learners_own() -> None:
    check_training(("learner",), 0)
    check_training(("rank", "inference"), 3)
    with pytest.raises(ConfigError, match=r"learner\.ranks"):
        check_training(("learner", "rank"), 1)
    with pytest.raises(ConfigError, match="--rank"):
        check_training(("selfplay",), None, "10.0.0.9")


@pytest.mark.parametrize(
    ("roles", "rank", "said", "learner"),
    [
        (("rank",), 2, "", "127.0.0.1"),  # where the brokers are
        (("rank",), 2, "127.0.0.9", "127.0.0.9"),
        (("learner",), 0, "", "127.0.0.1"),  # this machine, on the way to the brokers
        (("learner", "broker"), 0, "", "127.0.0.2"),  # as the others know it
    ],
)
def test_ranks_are_to_reach_the_machine_where_rank_0_trains(roles: tuple[str, ...], rank: int, said: str, learner: str) -> None:
    brokers = "127.0.0.2" if "broker" in roles else "127.0.0.1"
    found = training_of(Wish(f"rediss://{brokers}:6379/0", rank=rank, learner_host=said), roles)
    assert (found.learner, found.interface) == (learner, "lo" if learner == "127.0.0.1" else found.interface)
    assert training_of(Wish("rediss://127.0.0.1:6379/0", runs=("a",)), ("learner",)) == Training(("a",))


def test_under_systemd_a_rank_has_its_place_in_a_drop_in(tmp_path: Path) -> None:
    chosen = services(PC, ("rank",), training=Training(("a",), 1, "first"))
    steps, _ = plans.plan_units(MEMBER, chosen, Places(Path("/opt/azq"), Path("none")), plans.read_templates(chosen), False, tmp_path)
    write(steps)
    folder = tmp_path / "etc/systemd/system"
    assert {path.name for path in folder.glob("azq*@.service")} == {"azq-inference@.service", "azq-worker@.service", "azq-learner@.service"}
    drop_in = (folder / "azq-learner@a.service.d/rank.conf").read_text()
    assert drop_in == "[Service]\nEnvironment=RANK=1\nEnvironment=LOCAL_RANK=0\nEnvironment=MASTER_ADDR=first\n"


def test_tags_that_are_none_are_named() -> None:
    with pytest.raises(UnknownTagError, match="Box"):
        services(PC, ("selfplay",), ("Box",))


def write(steps: Sequence[Step]) -> None:
    for step in steps:
        if isinstance(step, WriteFile):
            carry_out(step)


def test_files_are_written_once_and_an_operators_are_kept(tmp_path: Path) -> None:
    first = plan_files(tmp_path, MEMBER, force=False)
    assert "s3cret" not in str([file.step for file in first])
    write([file.step for file in first if file.step])
    assert (tmp_path / "azq.env").stat().st_mode & 0o777 == 0o600
    assert "s3cret" not in (tmp_path / "azq.toml").read_text()
    again = plan_files(tmp_path, MEMBER, force=False)
    assert [file.step for file in again] == [None, None]

    (tmp_path / "azq.toml").write_text((tmp_path / "azq.toml").read_text() + "\n[inference]\nmax_batch = 512\n")
    kept = plan_files(tmp_path, MEMBER, force=False)[1]
    assert kept.step is None
    assert any("-max_batch = 512" in note for note in kept.notes)
    assert plan_files(tmp_path, MEMBER, force=True)[1].step is not None


def test_secrets_of_another_fleet_are_refused_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "azq.env").write_text("AZQ_BROKER__CONTROL_URL=redis://:hush@elsewhere:6379/0\n")
    with pytest.raises(StateConflict, match=r"redis://elsewhere:6379/0.*--force") as caught:
        plan_files(tmp_path, MEMBER, force=False)
    assert "hush" not in str(caught.value)
    assert plan_files(tmp_path, MEMBER, force=True)[0].step is not None


def test_under_systemd_only_workers_and_what_ends_machines_are_installed_and_a_second_time_nothing_restarts(tmp_path: Path) -> None:
    chosen = services(PC, ("selfplay", "eval"))
    places = Places(prefix=Path("/opt/azq"), server=Path("none"))

    def plan() -> tuple[list[Step], list[str]]:
        return plans.plan_units(MEMBER, chosen, places, plans.read_templates(), False, tmp_path)

    steps, _ = plan()
    write(steps)
    folder = tmp_path / "etc/systemd/system"
    units = {path.name for path in folder.glob("azq-*") if path.is_file()}
    assert units == {"azq-inference@.service", "azq-worker@.service", *plans.ENDING}
    assert "azq-broker" not in (folder / "azq.target").read_text()
    sizing = folder / "azq-worker@selfplay.cpu.service.d/concurrency.conf"
    assert sizing.read_text() == "[Service]\nEnvironment=AZQ_WORKER__CONCURRENCY=8\n"
    assert verbs(steps) == ["daemon-reload", "enable", "restart"]
    assert verbs(plan()[0]) == ["daemon-reload", "enable", "start"]


@pytest.mark.parametrize(
    ("told", "own", "enabled"),
    [
        ((), "", False),
        (("machine.hours=3", "machine.poweroff_command=['true']"), "", True),
        ((), "[machine]\nhours = 3\n", True),
        (("machine.hours=3",), "[machine]\nper_hour = 1.0\n", False),  # which is kept
    ],
)
def test_what_ends_a_machine_is_enabled_where_its_settings_say_that_something_does(
    tmp_path: Path, told: tuple[str, ...], own: str, enabled: bool
) -> None:
    if own:
        (tmp_path / "etc/azq").mkdir(parents=True)
        (tmp_path / "etc/azq/azq.toml").write_text(own)
    member = replace(MEMBER, own=Wish("rediss://a:6379/0", settings=told).own)
    places = Places(prefix=Path("/opt/azq"), server=Path("none"))
    steps, _ = plans.plan_units(member, services(PC, ("eval",)), places, plans.read_templates(), False, tmp_path)
    commands = [step.command for step in steps if isinstance(step, RunCommand) and step.command[1] in ("enable", "restart")]
    assert [set(UNITS) <= set(command) for command in commands] == [enabled, enabled]
    assert set(UNITS) <= set(plans.ENDING)


@pytest.mark.parametrize(
    ("told", "said"), [("broker.control_url=x", "--set broker"), ("machine.hours=-1", "machine.hours"), ("machine.hour=1", "machine.hour")]
)
def test_a_setting_that_join_does_not_write_is_named(told: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        _ = Wish("rediss://a:6379/0", settings=(told,)).own


def test_the_first_machine_keeps_its_own_target(tmp_path: Path) -> None:
    folder = tmp_path / "etc/systemd/system"
    folder.mkdir(parents=True)
    (folder / "azq-broker@.service").touch()
    places = Places(prefix=Path("/opt/azq"), server=Path("none"))
    steps, _ = plans.plan_units(MEMBER, services(PC, ("eval",)), places, plans.read_templates(), False, tmp_path)
    assert folder / "azq.target" not in [step.path for step in steps if isinstance(step, WriteFile)]


def verbs(steps: Sequence[Step]) -> list[str]:
    return [step.command[1] for step in steps if isinstance(step, RunCommand) and step.command[0] == "systemctl"]


@pytest.mark.parametrize(
    ("text", "address"), [(None, None), ("192.168.0.5", Listen("192.168.0.5", 6379)), ("first:7000", Listen("first", 7000))]
)
def test_where_brokers_listen(text: str | None, address: Listen | None) -> None:
    assert parse_listen(text) == address
    for none in (":6379", "first:port", "first:0", "first:65535", "a b", "redis://first"):
        with pytest.raises(ConfigError, match="--listen"):
            parse_listen(none)
