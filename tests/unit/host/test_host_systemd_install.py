"""`azq systemd install`: what it plans, what it writes, what it leaves alone."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from azq.bus.tls_proxy import server_context
from azq.config import load
from azq.errors import ConfigError
from azq.host.fronts import Listen
from azq.host.machine_end import UNITS
from azq.host.systemd import brokers as systemd_brokers
from azq.host.systemd import install as systemd
from azq.host.systemd import steps as systemd_steps
from azq.host.systemd.install import Places, plan, plan_removal
from azq.host.systemd.steps import MakeFolder, RemoveFile, RunCommand, WriteFile
from azq.wire import acl

PLACES = Places(prefix=Path("/opt/azq"), server=Path("/usr/bin/valkey-server"))
TEMPLATES = {
    "azq-daemon.service": "[Service]\nUser=@USER@\nExecStart=@BIN@/azq daemon\n",
    "azq.target": "[Unit]\nWants=azq-broker@control.service @DATA_BROKERS@ @FRONTS@\n",
}
FLOWER = {"flowerconfig.py": "port = 5555\n"}


def carry_out_files(root: Path, data_brokers: int = 1, listen: Listen | None = None) -> None:
    for step in plan(root, replace(PLACES, data_brokers=data_brokers, listen=listen), TEMPLATES, FLOWER):
        if not isinstance(step, RunCommand):
            systemd_steps.carry_out(step)


def test_every_file_of_a_plan_lies_below_the_root(tmp_path: Path) -> None:
    steps = plan(tmp_path, PLACES, TEMPLATES, FLOWER)
    assert all(step.path.is_relative_to(tmp_path) for step in steps if isinstance(step, MakeFolder | WriteFile))
    assert ("systemctl", "daemon-reload") not in [step.command for step in steps if isinstance(step, RunCommand)]
    live = plan(Path("/"), PLACES, TEMPLATES, FLOWER)
    assert live[-1] == RunCommand(("systemctl", "daemon-reload"))


@pytest.mark.parametrize(
    ("settings", "enabled"),
    [
        ("", ()),
        ("[machine]\nper_hour = 1.0\n", ()),
        ("[machine]\nhours = 3\n", UNITS),
        ("[machine]\nlost_after_s = 60\n", UNITS),
        ("[budget]\nmoney = 10\n", UNITS),
    ],
)
def test_what_ends_a_host_is_enabled_where_its_settings_say_so(tmp_path: Path, settings: str, enabled: tuple[str, ...]) -> None:
    (tmp_path / "azq.toml").write_text(settings)
    assert systemd_brokers.ending(tmp_path) == enabled
    last = plan(Path("/"), replace(PLACES, ending=enabled), TEMPLATES, FLOWER)[-1]
    assert last == RunCommand(("systemctl", "enable", "--now", *enabled) if enabled else ("systemctl", "daemon-reload"))


def test_units_name_the_environment_that_azq_is_installed_in(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    unit = (tmp_path / "etc/systemd/system/azq-daemon.service").read_text()
    assert "ExecStart=/opt/azq/bin/azq daemon" in unit
    assert "User=azq" in unit


@pytest.mark.parametrize(("groups", "lines"), [((), 1), (("render", "video"), 3)])
def test_the_services_user_may_use_the_cards_that_are_there(tmp_path: Path, groups: tuple[str, ...], lines: int) -> None:
    file = next(step for step in systemd.first_steps(tmp_path, replace(PLACES, groups=groups)) if isinstance(step, WriteFile))
    said = file.content().splitlines()
    assert said == ['u azq - "azq" /var/lib/azq', "m azq render", "m azq video"][:lines]


def test_passwords_are_generated_private_and_the_same_on_both_sides(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    config = tmp_path / "etc/azq"
    for name in ("broker-control.conf", "broker-data.conf", "azq.env", "flower.env"):
        assert stat.S_IMODE((config / name).stat().st_mode) == 0o600
    environment = (config / "azq.env").read_text()
    passwords = [systemd_brokers.password(config / f"broker-{role}.conf") for role in ("control", "data")]
    assert len(set(passwords)) == 2
    assert all(len(password) >= 32 and f":{password}@" in environment for password in passwords)
    assert list(config.glob(".*")) == []


def test_a_second_installation_keeps_what_operators_wrote_and_renews_units(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    config = tmp_path / "etc/azq"
    before = {path.name: path.read_text() for path in config.iterdir()}
    (config / "azq.toml").write_text("[daemon]\nport = 9000\n")
    (tmp_path / "etc/systemd/system/azq-daemon.service").write_text("old")
    (config / "azq.env").unlink()
    carry_out_files(tmp_path)
    assert (config / "azq.toml").read_text() == "[daemon]\nport = 9000\n"
    assert (config / "azq.env").read_text() == before["azq.env"]
    assert (tmp_path / "etc/systemd/system/azq-daemon.service").read_text() != "old"


def test_each_role_gets_its_own_user_and_the_daemon_alone_the_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out_files(tmp_path)
    config = tmp_path / "etc/azq"
    owner = config / "azq.env"
    owner.write_text(f"{owner.read_text()}AZQ_DAEMON__TOKEN=hunter22\nAZQ_STORE__OPTIONS__SECRET=for-all\n")
    carry_out_files(tmp_path, data_brokers=2)
    passwords = [systemd_brokers.password(config / f"broker-{role}.conf") for role in ("control", "data", "data1")]
    for role in acl.ROLES:
        path = config / f"role-{role}.env"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not any(password in path.read_text() for password in passwords)
        (tmp_path / role).mkdir()
        (tmp_path / role / "azq.env").write_text(path.read_text())
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / role))
        found = load(config / "azq.toml")
        control, *data = [f"azq-{role}:{acl.role_password(password, role)}" for password in passwords]
        assert found.broker.control_url == f"unix://{control}@/run/azq-control/broker.sock"
        assert found.broker.data_planes == tuple(
            f"unix://{login}@/run/azq-{name}/broker.sock" for login, name in zip(data, ("data", "data1"), strict=True)
        )
        assert found.daemon.token.get_secret_value() == ("hunter22" if role == "daemon" else "")
        assert found.store.revealed_options() == {"secret": "for-all"}


def test_brokers_that_listen_have_fronts_a_certificate_and_settings_that_invite(tmp_path: Path) -> None:
    config, listen = tmp_path / "etc/azq", Listen("192.168.0.5", 7000)
    carry_out_files(tmp_path, data_brokers=2, listen=listen)
    assert (
        "azq-front@control.service azq-front@data.service azq-front@data1.service\n"
        in (tmp_path / "etc/systemd/system/azq.target").read_text()
    )
    assert [(config / f"front-{role}.env").read_text() for role in ("control", "data", "data1")] == [
        f"LISTEN=192.168.0.5:{port}\n" for port in (7000, 7001, 7002)
    ]
    assert stat.S_IMODE((config / "broker-key.pem").stat().st_mode) == 0o600
    server_context(config / "broker.pem", config / "broker-key.pem")  # they belong together
    found = load(config / "azq.toml")
    assert found.broker.public_control_url == "rediss://192.168.0.5:7000/0"
    assert found.broker.public_data_urls == ("rediss://192.168.0.5:7001/0", "rediss://192.168.0.5:7002/0")
    assert (found.broker.tls_ca, found.store.url, found.broker.data_shards) == (Path("/etc/azq/broker.pem"), "redis", 2)
    assert systemd_brokers.installed_listen(config, None) == listen  # an installation after this one keeps it


def test_a_second_installation_keeps_the_certificate_and_replaces_half_of_one(tmp_path: Path) -> None:
    config, listen = tmp_path / "etc/azq", Listen("first", 6379)
    carry_out_files(tmp_path, listen=listen)
    before = (config / "broker.pem").read_text()
    carry_out_files(tmp_path, listen=listen)
    assert (config / "broker.pem").read_text() == before
    (config / "broker-key.pem").unlink()
    carry_out_files(tmp_path, listen=listen)
    assert (config / "broker.pem").read_text() != before
    server_context(config / "broker.pem", config / "broker-key.pem")


def test_settings_of_an_operator_are_kept_and_what_they_lack_is_said(tmp_path: Path) -> None:
    settings = tmp_path / "etc/azq/azq.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[daemon]\nport = 9000\n")
    assert "broker.public_control_url" in " ".join(systemd.install(root=tmp_path, dry_run=True, listen="192.168.0.5"))
    settings.write_text('[broker]\npublic_control_url = "rediss://192.168.0.5:6379/0"\n')
    assert "broker.public_control_url" not in " ".join(systemd.install(root=tmp_path, dry_run=True, listen="192.168.0.5"))


def test_several_data_planes_have_a_unit_settings_and_an_address_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out_files(tmp_path, data_brokers=3)
    config = tmp_path / "etc/azq"
    target = (tmp_path / "etc/systemd/system/azq.target").read_text()
    assert "azq-broker@data.service azq-broker@data1.service azq-broker@data2.service \n" in target
    passwords = [systemd_brokers.password(config / f"broker-{role}.conf") for role in ("control", "data", "data1", "data2")]
    assert len(set(passwords)) == 4
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(config))  # as the services get it
    found = load(config / "azq.toml").broker
    assert found.control_url == f"unix://:{passwords[0]}@/run/azq-control/broker.sock"
    assert found.data_planes == tuple(
        f"unix://:{word}@/run/azq-{role}/broker.sock" for role, word in zip(("data", "data1", "data2"), passwords[1:], strict=True)
    )
    assert found.data_shards == 3


def test_a_data_plane_more_or_less_changes_its_line_of_addresses_and_nothing_else(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    config, secrets = tmp_path / "etc/azq", tmp_path / "etc/azq/azq.env"
    one = secrets.read_text()
    secrets.write_text(f"{one}AZQ_DAEMON__TOKEN=hunter22\n")
    before = (config / "broker-data.conf").read_text()
    carry_out_files(tmp_path, data_brokers=2)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    lines = secrets.read_text().splitlines()
    assert (lines[0], lines[-1]) == (one.splitlines()[0], "AZQ_DAEMON__TOKEN=hunter22")
    assert lines[1].startswith('AZQ_BROKER__DATA_URLS=["unix://')
    assert (config / "broker-data.conf").read_text() == before
    carry_out_files(tmp_path)
    assert secrets.read_text() == f"{one}AZQ_DAEMON__TOKEN=hunter22\n"


def test_data_planes_elsewhere_are_the_operators_and_stay(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    secrets = tmp_path / "etc/azq/azq.env"
    text = "AZQ_BROKER__CONTROL_URL=redis://:a@far:1/0\nAZQ_BROKER__DATA_URL=redis://:a@far:2/0\n"
    secrets.write_text(text)
    assert "names data planes of other hosts" in " ".join(systemd.install(root=tmp_path, dry_run=True, data_shards=2))
    carry_out_files(tmp_path, data_brokers=2)
    assert secrets.read_text() == text


def test_how_many_data_planes_is_asked_for_or_in_the_settings_and_never_both_ways(tmp_path: Path) -> None:
    settings = tmp_path / "azq.toml"
    assert systemd_brokers.wanted_count(settings, None) == 1
    settings.write_text("# as it was installed\n")
    assert systemd_brokers.wanted_count(settings, 2) == 2
    settings.write_text("[broker]\ndata_shards = 3\n")
    assert [systemd_brokers.wanted_count(settings, asked) for asked in (None, 3)] == [3, 3]
    with pytest.raises(ConfigError, match=r"data_shards = 3; set 2 there"):
        systemd_brokers.wanted_count(settings, 2)


def test_a_dry_run_writes_nothing_and_shows_no_password(tmp_path: Path) -> None:
    lines = systemd.install(root=tmp_path, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert any(line.startswith("would write") and "azq-worker@.service" in line for line in lines)
    assert not any("requirepass" in line or "unix://:" in line for line in lines)


def test_a_removal_stops_what_runs_and_takes_units_and_nothing_else(tmp_path: Path) -> None:
    units = ["azq-daemon.service", "azq.target"]
    stop, disable, *removed, reload = plan_removal(Path("/"), units)
    assert stop == RunCommand(("systemctl", "stop", "azq*"))
    assert disable == RunCommand(("systemctl", "disable", *units))
    assert reload == RunCommand(("systemctl", "daemon-reload"))
    paths = [*(Path("/etc/systemd/system") / name for name in units), Path("/usr/lib/sysusers.d/azq.conf")]
    assert removed == [RemoveFile(path) for path in paths]
    assert not any(isinstance(step, RunCommand) for step in plan_removal(tmp_path, units))


def test_an_installation_that_is_removed_leaves_its_settings(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    before = sorted((tmp_path / "etc/azq").iterdir())
    told = systemd.uninstall(root=tmp_path, dry_run=True)
    assert f"would remove {tmp_path}/etc/systemd/system/azq-daemon.service" in told
    assert (tmp_path / "etc/systemd/system/azq-daemon.service").exists()
    assert "are kept" in systemd.uninstall(root=tmp_path)[-1]
    assert list((tmp_path / "etc/systemd/system").iterdir()) == []
    assert sorted((tmp_path / "etc/azq").iterdir()) == before
    systemd.uninstall(root=tmp_path)  # nothing is there any more


def test_an_environment_in_a_home_folder_is_refused_with_the_remedy() -> None:
    homes = (Path("/home"),)
    assert "/opt/azq" in systemd.hidden_from_service([Path("/opt/azq"), Path("/home/ada/venv")], homes)
    assert systemd.hidden_from_service([Path("/opt/azq"), Path("/usr/bin/python3")], homes) == ""


def test_a_command_that_fails_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"`sh -c echo broken >&2; exit 3` failed: broken"):
        systemd_steps.carry_out(RunCommand(("sh", "-c", "echo broken >&2; exit 3")))
