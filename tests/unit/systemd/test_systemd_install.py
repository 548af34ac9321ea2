"""`azq systemd install`: what it plans, what it writes, what it leaves alone."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from azq.console import systemd
from azq.console.systemd import MakeFolder, Places, RunCommand, WriteFile, plan
from azq.errors import ConfigError

PLACES = Places(prefix=Path("/opt/azq"), server=Path("/usr/bin/valkey-server"))
TEMPLATES = {"azq-daemon.service": "[Service]\nUser=@USER@\nExecStart=@BIN@/azq daemon\n"}
FLOWER = {"flowerconfig.py": "port = 5555\n"}


def carry_out_files(root: Path) -> None:
    for step in plan(root, PLACES, TEMPLATES, FLOWER):
        if not isinstance(step, RunCommand):
            systemd.carry_out(step)


def test_every_file_of_a_plan_lies_below_the_root(tmp_path: Path) -> None:
    steps = plan(tmp_path, PLACES, TEMPLATES, FLOWER)
    assert all(step.path.is_relative_to(tmp_path) for step in steps if isinstance(step, MakeFolder | WriteFile))
    assert ("systemctl", "daemon-reload") not in [step.command for step in steps if isinstance(step, RunCommand)]
    live = plan(Path("/"), PLACES, TEMPLATES, FLOWER)
    assert live[-1] == RunCommand(("systemctl", "daemon-reload"))


def test_units_name_the_environment_that_azq_is_installed_in(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    unit = (tmp_path / "etc/systemd/system/azq-daemon.service").read_text()
    assert "ExecStart=/opt/azq/bin/azq daemon" in unit
    assert "User=azq" in unit


def test_passwords_are_generated_private_and_the_same_on_both_sides(tmp_path: Path) -> None:
    carry_out_files(tmp_path)
    config = tmp_path / "etc/azq"
    for name in ("broker-control.conf", "broker-data.conf", "azq.env", "flower.env"):
        assert stat.S_IMODE((config / name).stat().st_mode) == 0o600
    environment = (config / "azq.env").read_text()
    passwords = [systemd._password(config, role) for role in ("control", "data")]
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


def test_a_dry_run_writes_nothing_and_shows_no_password(tmp_path: Path) -> None:
    lines = systemd.install(root=tmp_path, dry_run=True)
    assert list(tmp_path.iterdir()) == []
    assert any(line.startswith("would write") and "azq-worker@.service" in line for line in lines)
    assert not any("requirepass" in line or "unix://:" in line for line in lines)


def test_an_environment_in_a_home_folder_is_refused_with_the_remedy() -> None:
    homes = (Path("/home"),)
    assert "/opt/azq" in systemd.hidden_from_service([Path("/opt/azq"), Path("/home/ada/venv")], homes)
    assert systemd.hidden_from_service([Path("/opt/azq"), Path("/usr/bin/python3")], homes) == ""


def test_a_command_that_fails_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match=r"`sh -c echo broken >&2; exit 3` failed: broken"):
        systemd.carry_out(RunCommand(("sh", "-c", "echo broken >&2; exit 3")))
