"""The units: accepted by systemd itself, and in step with azq's exit codes."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from azq.errors import DO_NOT_RESTART, ConfigError, ExitCode
from azq.host.systemd import install as systemd

UNITS = sorted(path.name for path in (systemd.assets() / "systemd").iterdir())
SERVICES = [name for name in UNITS if name.endswith(".service")]
ONE_SHOT = ("azq-fleet.service", "azq-deadman.service", "azq-machine-end.service")  # they look and end
LASTING = [name for name in SERVICES if name not in ONE_SHOT]
OUTLIVING = ("azq-machine.service", "azq-deadman.service", "azq-machine-end.service")  # who end a machine outlive what works on it
WITH_CHILDREN = ("azq-worker@.service", "azq-learner@.service", "azq-gateway.service")  # which die and are started again
ROOTS = "azq-machine-end.service"  # the one that stops services
INSTANCES = {
    "azq-worker@": "selfplay.cpu",
    "azq-inference@": "cpu",
    "azq-learner@": "first",
    "azq-broker@": "control",
    "azq-front@": "control",
}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Units with every template instantiated, and programs that exist."""
    root = tmp_path_factory.mktemp("units")
    programs = root / "prefix" / "bin"
    programs.mkdir(parents=True)
    for name in ("azq", "celery", "valkey-server"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    places = systemd.Places(prefix=root / "prefix", server=programs / "valkey-server")
    units = root / "units"
    units.mkdir()
    for name in UNITS:
        text = systemd.render((systemd.assets() / "systemd" / name).read_text("utf-8"), places.variables())
        (units / name).write_text(text)
    return units


def unit(rendered: Path, name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",), comment_prefixes=("#",), empty_lines_in_values=False)
    parser.optionxform = str  # type: ignore[assignment]
    parser.read_string((rendered / name).read_text())
    return parser


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_every_unit(rendered: Path) -> None:
    names = [
        name.replace("@", f"@{next(i for p, i in INSTANCES.items() if name.startswith(p))}") if "@" in name else name for name in UNITS
    ]
    for source, name in zip(UNITS, names, strict=True):
        if source != name:
            shutil.copy(rendered / source, rendered / name)
    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *(str(rendered / name) for name in names)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{rendered}:"},
    )
    ours = [line for line in result.stderr.splitlines() if "azq" in line]
    assert ours == []
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_bounded_without_privileges_or_secrets_and_stop_with_the_target_alone(rendered: Path, name: str) -> None:
    section, service = unit(rendered, name)["Unit"], unit(rendered, name)["Service"]
    assert section.get("PartOf") == (None if name in OUTLIVING else "azq.target")
    assert {"Requires", "BindsTo"}.isdisjoint(section)
    assert service.get("Slice") == (None if name in OUTLIVING else "azq.slice")
    assert service.get("OOMPolicy") == ("continue" if name in WITH_CHILDREN else None)
    assert unit(rendered, "azq.slice")["Slice"]["MemoryMax"] == "90%"
    assert not re.search("password|token|basic.auth|requirepass", service["ExecStart"])
    if name != ROOTS:
        own = {"User": "azq", "NoNewPrivileges": "yes", "ProtectSystem": "strict", "CapabilityBoundingSet": ""}
        assert own.items() <= dict(service).items()
        assert int(service["TimeoutStopSec"]) > 0
        assert service.get("Restart") == ("always" if name in LASTING else None)


@pytest.mark.parametrize("name", LASTING)
def test_who_lasts_starts_again_for_ever_but_after_exit_codes_that_forbid_it(rendered: Path, name: str) -> None:
    text = (rendered / name).read_text()
    assert "StartLimitIntervalSec=0\n" in text
    assert "StartLimitBurst" not in text
    if not re.search("broker|flower", name):
        codes = {int(code) for code in unit(rendered, name)["Service"]["RestartPreventExitStatus"].split()}
        assert codes == {int(code) for code in DO_NOT_RESTART} - {int(ExitCode.OK)}


def test_only_the_target_and_the_daemon_want_the_broker(rendered: Path) -> None:
    wanting = [name for name in UNITS if "azq-broker" in unit(rendered, name)["Unit"].get("Wants", "")]
    assert wanting == ["azq-daemon.service", "azq.target"]


def test_who_ends_a_machine_is_asked_by_a_file_that_the_watch_and_the_timer_write(rendered: Path) -> None:
    asked = unit(rendered, "azq-machine-end.path")["Path"]["PathExists"]
    for name in ("azq-machine.service", "azq-deadman.service"):
        service = unit(rendered, name)
        assert Path(asked).parent == Path("/run") / service["Service"]["RuntimeDirectory"]
        assert service["Service"]["RuntimeDirectoryPreserve"] == "yes"
        assert service["Unit"]["Wants"].split()[-1] == "azq-machine-end.path"
    assert unit(rendered, "azq-deadman.service")["Service"]["RestrictAddressFamilies"] == "AF_UNIX"


def test_each_service_reads_the_secrets_of_its_role_and_only_the_fleets_owner_those_of_all(rendered: Path) -> None:
    read = {name: unit_lines(rendered, name, "LoadCredential=azq.env:") for name in SERVICES}
    assert read.pop("azq-broker@.service") == []
    assert read.pop("azq-front@.service") == []
    assert read.pop("azq-fleet.service") == ["/etc/azq/azq.env"]
    assert read.pop("azq-machine.service") == ["/etc/azq/role-worker.env"]
    assert [read.pop(name) for name in ("azq-deadman.service", ROOTS)] == [[], []]
    for name, files in read.items():
        assert files == [f"/etc/azq/role-{re.split('[-@.]', name)[1]}.env"]
    places = systemd.Places(Path("/opt"), Path("/old-server"), users=False)
    text = systemd.render((systemd.assets() / "systemd" / "azq-worker@.service").read_text("utf-8"), places.variables())
    assert "LoadCredential=azq.env:/etc/azq/azq.env" in text


def test_a_broker_that_keeps_users_has_its_file_of_them_made_before_it_starts(rendered: Path) -> None:
    text = (rendered / "azq-broker@.service").read_text()
    assert "/azq fleet seed --conf ${CREDENTIALS_DIRECTORY}/broker.conf /var/lib/azq/broker-%i/users.acl\n" in text
    assert unit(rendered, "azq-broker@.service")["Service"]["ExecStart"].endswith(" --aclfile /var/lib/azq/broker-%i/users.acl")
    places = systemd.Places(Path("/opt"), Path("/old-server"), users=False)
    old = systemd.render((systemd.assets() / "systemd" / "azq-broker@.service").read_text("utf-8"), places.variables())
    assert "acl" not in old
    assert "seed" not in old


def unit_lines(rendered: Path, name: str, start: str) -> list[str]:
    return [line.removeprefix(start) for line in (rendered / name).read_text().splitlines() if line.startswith(start)]


def test_a_name_that_azq_does_not_know_is_an_error() -> None:
    with pytest.raises(ConfigError, match="@COLOUR@"):
        systemd.render("[Service]\nExecStart=/bin/@COLOUR@ x\n", {"BIN": "/usr/bin"})


def test_instance_units_and_addresses_with_an_at_sign_are_no_left_over_names() -> None:
    text = "Wants=azq-broker@control.service azq-broker@data.service\n"
    assert systemd.render(text, {}) == text


def test_delays_grow_where_systemd_can_do_that() -> None:
    assert systemd.backoff(254).splitlines() == ["RestartSteps=8", "RestartMaxDelaySec=30"]
    assert all(line.startswith("#") for version in (0, 252) for line in systemd.backoff(version).splitlines())
    for name in LASTING:
        text = (systemd.assets() / "systemd" / name).read_text("utf-8")
        assert "RestartSteps=8" in systemd.render(text, systemd.Places(Path("/opt"), Path("/s"), systemd_version=255).variables())


@pytest.mark.parametrize("name", ["azq-inference@.service", "azq-learner@.service"])
def test_a_card_is_there_before_who_computes_on_it_and_matters_nothing_without_one(rendered: Path, name: str) -> None:
    parsed = unit(rendered, name)
    assert {"nvidia-persistenced.service"} <= {*parsed["Unit"]["Wants"].split()} & {*parsed["Unit"]["After"].split()}
    assert parsed["Service"]["ExecStartPre"] == "+-/usr/bin/nvidia-modprobe -c 0 -u"
    assert str(int(ExitCode.DEVICE)) not in parsed["Service"]["RestartPreventExitStatus"].split()
