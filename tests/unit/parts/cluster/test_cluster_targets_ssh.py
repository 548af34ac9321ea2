"""What hosts that stand already are told by ssh: words that azq knows, settings that it reads, no secrets; what the scripts do there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import parsed
from waiting import PATIENCE_S

from azq.config import load
from azq.errors import ConfigError
from azq.host.join.join import Wish
from azq.parts.cluster.description import Cluster, cluster_of
from azq.parts.cluster.targets.files import write
from azq.parts.cluster.targets.registry import render

MACHINES: dict[str, Any] = {
    "head": {"kind": "cpu", "roles": ["broker", "daemon", "learner"], "hosts": ["root@10.0.0.1"]},
    "leaves": {"kind": "gpu", "roles": ["inference"], "hosts": ["ada@10.0.0.2"]},
    "players": {"kind": "cpu", "count": 2, "roles": ["selfplay", "eval"], "concurrency": 4, "hosts": ["10.0.0.3", "10.0.0.4"]},
}
# A host is a folder; ssh runs the command there, with a systemctl and an azq that only note what they are asked.
SSH = '#!/bin/bash\nexport ROOT=$LOG/$1; mkdir -p "$ROOT"; [ ! -e "$LOG/$1.away" ] || exit 255; exec sh -c "$2"\n'
SYSTEMCTL = '#!/bin/sh\necho "systemctl $*" >>"$ROOT/asked"\n'
AZQ = """#!/bin/bash
echo "$*" >>"$ROOT/asked"
case $* in
join*--token-file*) cat >"$ROOT/token" ;;
join-token*) echo "{\\"token\\": \\"secret-of-$5\\", \\"name\\": \\"$5\\"}" ;;
"runs show"*) [ -e "$ROOT/run" ] ;;
"runs create"*) touch "$ROOT/run" ;;
esac
"""


def lab(machines: dict[str, Any] = MACHINES, **said: Any) -> Cluster:
    kinds = {"cpu": {"per_hour": 0.5, "vcpus": 16}, "gpu": {"per_hour": 2.0, "vcpus": 32, "gpus": 4}}
    data = {
        "cluster": {"name": "lab"},
        "kinds": kinds,
        "machines": machines,
        "run": {"game": "othello", "name": "big", "preset": "gpu", "until": "steps=9"},
        "budget": {"hours": 3.0},
        "settings": {"machine": {"poweroff_command": ["systemctl", "poweroff"]}, "daemon": {"lease_s": 30}},
        "ssh": {"azq": ["/opt/azq/bin/azq"]},
    }
    return cluster_of({**data, **said}, "lab.toml")


def values_of(machine: str, name: str, cluster: Cluster | None = None) -> list[str]:
    """What a variable of a machine's script holds."""
    script = render(cluster or lab(), "ssh")[f"hosts/{machine}.sh"].text
    told = subprocess.run(["bash", "-c", f'{script}\nprintf "%s\\0" "${{{name}[@]}}"'], capture_output=True, text=True, check=True)
    return told.stdout.split("\0")[:-1]


@pytest.mark.parametrize(("machine", "group"), [("head", "head"), ("leaves", "leaves"), ("players-2", "players")])
def test_every_host_joins_with_words_that_azq_takes(machine: str, group: str) -> None:
    values = parsed(["join", *values_of(machine, "words")])
    assert values["control"] == "rediss://10.0.0.1:6379/0"
    assert values["roles"].split(",") == MACHINES[group]["roles"]
    assert values["concurrency"] == MACHINES[group].get("concurrency")
    if machine != "head":
        own = Wish("", settings=tuple(values["overrides"])).own
        assert own["daemon"] == {"lease_s": 30}
        assert own["machine"]["hours"] == 3.0
        assert own["machine"]["poweroff_command"] == ["systemctl", "poweroff"]


def test_the_first_machines_settings_are_such_that_others_may_join(tmp_path: Path) -> None:
    cluster = lab(settings={"broker": {"data_shards": 2}, "budget": {"money": 9.0}})
    (tmp_path / "azq.toml").write_text(values_of("head", "settings", cluster)[0])
    config = load(tmp_path / "azq.toml")
    assert config.broker.public_control_url == "rediss://10.0.0.1:6379/0"
    assert config.broker.public_data_urls == ("rediss://10.0.0.1:6380/0", "rediss://10.0.0.1:6381/0")
    assert (config.store.url, config.machine.hours, config.budget.hours, config.budget.money) == ("redis", 3.0, 3.0, 9.0)
    assert values_of("leaves", "settings") == [""]
    assert not [word for word in values_of("leaves", "words", cluster) if "data_shards" in word]


@pytest.mark.parametrize(
    ("machines", "said"),
    [
        ({**MACHINES, "leaves": {**MACHINES["leaves"], "hosts": ["10.0.0.1"]}}, r"10\.0\.0\.1 is head already"),
        (
            {
                "head": {"kind": "cpu", "roles": ["broker", "learner"], "hosts": ["a"]},
                "d": {"kind": "cpu", "roles": ["daemon"], "hosts": ["b"]},
                "p": {"kind": "cpu", "roles": ["selfplay", "inference"], "hosts": ["c"]},
            },
            "give it both",
        ),
        ({**MACHINES, "players": {"kind": "cpu", "roles": ["selfplay"]}}, "names no hosts"),
    ],
)
def test_what_ssh_cannot_carry_is_refused(machines: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        render(lab(machines), "ssh")


@pytest.mark.parametrize("command", [["ssh", "-p", "22", "{host}", "{command}"], ["enter", "{address}", "as", "{user}"]])
def test_hosts_are_reached_as_the_file_says(command: list[str]) -> None:
    script = render(lab(ssh={"command": command}), "ssh")["cluster.sh"].text
    (way,) = re.findall(r"^        leaves\) (.*) ;;$", script, re.MULTILINE)
    told = {"{host}": "ada@10.0.0.2", "{address}": "10.0.0.2", "{user}": "ada"}
    wanted = [told.get(word, word) for word in command]
    assert shlex.split(way) == ([*wanted[:-1], "$2"] if "{command}" in command else [*wanted, "sh", "-c", "$2"])
    assert '"$2"' in way


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    cluster = lab(ssh={"command": [str(tmp_path / "bin/ssh"), "{address}", "{command}"], "azq": [str(tmp_path / "bin/azq")]})
    files = dict(render(cluster, "ssh"))
    places = "folder=/etc/azq note=/etc/azq/cluster paused=/var/lib/azq/paused"
    machine = files["machine.sh"]
    files["machine.sh"] = replace(machine, text=machine.text.replace(places, "folder=$ROOT note=$ROOT/note paused=$ROOT/paused"))
    assert "$ROOT/note" in files["machine.sh"].text
    write(files, "ssh", tmp_path / "out")
    (tmp_path / "bin").mkdir()
    for name, text in {"ssh": SSH, "systemctl": SYSTEMCTL, "azq": AZQ, "sudo": '#!/bin/sh\nshift\nexec "$@"\n'}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def call(desk: Path, script: str, *words: str) -> tuple[int, dict[str, list[str]], str]:
    """Its exit code, what each host was asked for, what was said."""
    for path in desk.glob("10.*/asked"):
        path.unlink()
    environment = {"PATH": f"{desk / 'bin'}:{os.environ['PATH']}", "LOG": str(desk)}
    done = subprocess.run(
        [desk / "out" / script, *words], capture_output=True, text=True, env=environment, cwd="/", check=False, timeout=PATIENCE_S
    )
    asked = {path.parent.name: path.read_text().splitlines() for path in desk.glob("10.*/asked")}
    return done.returncode, asked, done.stdout + done.stderr


def joins(asked: dict[str, list[str]]) -> set[str]:
    return {host for host, lines in asked.items() if any(line.startswith("join ") for line in lines)}


def test_a_second_installation_changes_nothing_and_what_changed_is_done_again(desk: Path) -> None:
    code, asked, said = call(desk, "install.sh")
    assert (code, joins(asked)) == (0, {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}), said
    assert (desk / "10.0.0.4" / "token").read_text() == "secret-of-players-2\n"
    assert "secret" not in said + "".join(line for lines in asked.values() for line in lines)
    created = next(line for line in asked["10.0.0.1"] if line.startswith("runs create"))
    assert parsed(shlex.split(created))["game"] == "othello"
    code, asked, said = call(desk, "install.sh")
    assert (code, joins(asked)) == (0, set()), said
    assert not [line for line in asked["10.0.0.1"] if line.startswith(("runs create", "join-token"))]
    host = desk / "out/hosts/leaves.sh"
    host.write_text(re.sub("wanted=\\w+", "wanted=other", host.read_text()))
    assert joins(call(desk, "install.sh")[1]) == {"10.0.0.2"}
    (desk / "10.0.0.1" / "note").unlink()  # brokers that are new know none of the others
    (desk / "10.0.0.1" / "azq.toml").unlink()
    assert len(joins(call(desk, "install.sh")[1])) == 4


def test_a_host_that_is_away_is_named_and_joins_the_next_time(desk: Path) -> None:
    (desk / "10.0.0.3.away").touch()
    code, asked, said = call(desk, "install.sh")
    assert (code, joins(asked)) == (1, {"10.0.0.1", "10.0.0.2", "10.0.0.4"})
    assert "players-1: has not joined" in said
    (desk / "10.0.0.3.away").unlink()
    code, asked, _ = call(desk, "install.sh")
    assert (code, joins(asked)) == (0, {"10.0.0.3"})


def test_another_fleets_settings_stay_unless_told(desk: Path) -> None:
    (desk / "10.0.0.2").mkdir()
    (desk / "10.0.0.2" / "azq.toml").write_text("[daemon]\n")
    code, asked, said = call(desk, "install.sh")
    assert (code, "10.0.0.2" in joins(asked)) == (1, False)
    assert "azq.toml is of another fleet" in said
    assert "10.0.0.2" in joins(call(desk, "install.sh", "--force")[1])


def test_who_is_needed_last_leaves_last_and_runs_go_on_after_the_next_installation(desk: Path) -> None:
    call(desk, "install.sh")
    code, asked, said = call(desk, "remove.sh")
    left = re.findall(r"^(\S+): has left", said, re.MULTILINE)
    assert (code, left[:2], left[-1]) == (0, ["players-1", "players-2"], "head")
    assert all("systemd uninstall" in lines for lines in asked.values())
    assert any(line.startswith("runs pause big") for line in asked["10.0.0.1"])
    code, asked, said = call(desk, "install.sh")
    assert (code, len(joins(asked))) == (0, 4), said
    assert any(line.startswith("runs resume big") for line in asked["10.0.0.1"])


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="no shellcheck here")
def test_the_scripts_are_sound(tmp_path: Path) -> None:
    write(render(lab(), "ssh"), "ssh", tmp_path / "out")
    scripts = ["install.sh", "remove.sh", "machine.sh", *(f"hosts/{path.name}" for path in (tmp_path / "out/hosts").iterdir())]
    subprocess.run(["shellcheck", "--external-sources", *scripts], check=True, cwd=tmp_path / "out")
