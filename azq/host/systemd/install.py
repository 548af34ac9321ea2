"""Installs and removes the systemd units: the steps are planned by a pure function, then printed or carried out."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import azq
from azq.bus.server_program import find_server, server_at
from azq.errors import DO_NOT_RESTART, ConfigError, ExitCode
from azq.host.fronts import Listen
from azq.host.systemd import brokers
from azq.host.systemd.steps import MakeFolder, RemoveFile, RunCommand, Step, WriteFile, carry_out
from azq.process.cards import drivers
from azq.wire.acl import ROLES, SINCE
from azq.wire.shards import data_names

USER = "azq"
UNIT_FOLDER = Path("/etc/systemd/system")
CONFIG_FOLDER = Path("/etc/azq")
STATE_FOLDER = Path("/var/lib/azq")
BACKOFF_SINCE = 254  # the systemd that brought RestartSteps=
_SEED = "ExecStartPre=@BIN@/azq fleet seed --conf ${CREDENTIALS_DIRECTORY}/broker.conf @STATE@/broker-%i/users.acl"
SYSUSERS_FILE = Path("/usr/lib/sysusers.d/azq.conf")


@dataclass(frozen=True, slots=True)
class Places:
    """Where things are on the host that runs the units."""

    prefix: Path  # of the Python environment that azq is installed in
    server: Path  # Valkey or Redis
    user: str = USER
    config: Path = CONFIG_FOLDER
    state: Path = STATE_FOLDER
    systemd_version: int = 0  # 0: unknown
    data_brokers: int = 1
    users: bool = True  # whether this host's brokers keep them; False too where there are none
    listen: Listen | None = None  # where other machines reach the brokers, over TLS
    ending: tuple[str, ...] = ()  # units of what ends this machine, by its settings
    # AMD's device files belong to these groups; NVIDIA's are open to all users.
    groups: tuple[str, ...] = field(default_factory=lambda: ("render", "video") if "rocm" in drivers() else ())

    @property
    def roles(self) -> tuple[str, ...]:
        """The planes whose brokers run here, control first."""
        return (brokers.CONTROL, *data_names(self.data_brokers))

    def variables(self) -> dict[str, str]:
        """What the unit templates name between at signs."""
        return {
            "USER": self.user,
            "SEED": _SEED if self.users else "# This server keeps no users: all clients have its one password.",
            "ACLFILE": " --aclfile @STATE@/broker-%i/users.acl" if self.users else "",
            **{f"{role.upper()}_ENV": brokers.role_file(role) if self.users else "azq.env" for role in ROLES},
            "BIN": str(self.prefix / "bin"),
            "CONFIG": str(self.config),
            "STATE": str(self.state),
            "SERVER": str(self.server),
            "DATA_BROKERS": " ".join(f"azq-broker@{role}.service" for role in data_names(self.data_brokers)),
            "FRONTS": " ".join(f"azq-front@{role}.service" for role in self.roles if self.listen),
            "DO_NOT_RESTART": exit_codes(),
            "BACKOFF": backoff(self.systemd_version),
        }


def exit_codes() -> str:
    """Exit codes that no restart can mend, for `RestartPreventExitStatus`."""
    return " ".join(str(int(code)) for code in sorted(DO_NOT_RESTART - {ExitCode.OK}))


def backoff(version: int) -> str:
    """Lines that make a service that keeps dying wait longer each time."""
    if version < BACKOFF_SINCE:
        return f"# systemd {version} knows no RestartSteps, {BACKOFF_SINCE} does: the delay stays the same."
    return "RestartSteps=8\nRestartMaxDelaySec=30"


def installed_version() -> int:
    """The version of this host's systemd; 0 where there is none."""
    try:
        words = subprocess.run(["systemctl", "--version"], capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        return 0
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0


def render(template: str, variables: Mapping[str, str]) -> str:
    """A unit from its template; `ConfigError` when a name is left over."""
    for name, value in variables.items():
        template = template.replace(f"@{name}@", value)
    left = next((line for line in template.splitlines() if "=" in line and not line.startswith("#") and _has_name(line)), None)
    if left is not None:
        raise ConfigError(f"unit template has an unknown name in {left!r}; the templates and azq differ in version, install azq again")
    return template


def plan(root: Path, places: Places, templates: Mapping[str, str], files: Mapping[str, str]) -> list[Step]:
    """What an installation below `root` does, in order. `templates`: units by file name; `files`: Flower's settings by file name."""
    config, units, roles = below(root, places.config), below(root, UNIT_FOLDER), places.roles
    steps = first_steps(root, places, f"--root={root}")

    def add(name: str, content: Callable[[], str], mode: int = 0o600, *, keep: bool = True, secret: bool = True) -> None:
        steps.append(WriteFile(config / name, content, mode, keep=keep, secret=secret))

    # Secrets are read by the service manager, which is root, and handed to the service; no other process needs to read them.
    for role in roles:
        add(brokers.conf_file(role), partial(brokers.conf, role))
    add(brokers.ADDRESSES, partial(brokers.environment, config, roles), keep=not brokers.renews(config, places.data_brokers))
    for role in ROLES if places.users else ():
        add(brokers.role_file(role), partial(brokers.role_environment, config, role), keep=False)
    add("flower.env", lambda: f"FLOWER_BASIC_AUTH=ops:{secrets.token_hex(16)}\n")
    is_set = brokers.has_settings(config / brokers.SETTINGS)
    settings = partial(brokers.host_settings, places.config, places.data_brokers, places.listen)
    add(brokers.SETTINGS, settings, 0o644, keep=is_set, secret=False)
    steps += brokers.front_files(config, places.listen, roles)
    for name, text in sorted(files.items()):
        add(name, partial(str, text), 0o644, secret=False)
    for name, template in sorted(templates.items()):
        steps.append(WriteFile(units / name, partial(str, render(template, places.variables())), 0o644))
    if root == Path("/"):
        steps.append(RunCommand(("systemctl", "daemon-reload")))
        if places.ending:
            steps.append(RunCommand(("systemctl", "enable", "--now", *places.ending)))
    return steps


def first_steps(root: Path, places: Places, *options: str) -> list[Step]:
    """The user and the folders, with which every installation begins. `options`: of systemd-sysusers."""
    sysusers = [f'u {places.user} - "azq" {places.state}', *(f"m {places.user} {group}" for group in places.groups)]
    return [
        WriteFile(below(root, SYSUSERS_FILE), lambda: "\n".join(sysusers) + "\n", 0o644),
        RunCommand(("systemd-sysusers", *options, str(SYSUSERS_FILE))),
        MakeFolder(below(root, places.config), 0o755),
        MakeFolder(below(root, UNIT_FOLDER), 0o755),
    ]


def install(*, root: Path = Path("/"), dry_run: bool = False, data_shards: int | None = None, listen: str | None = None) -> list[str]:
    """Installs below `root`, or only tells what that would do; returns one line a step.

    `data_shards`: data planes of this host; those of its azq.toml by default, else one.
    `listen`: HOST[:PORT] at which other machines reach them over TLS; that of an installation before this one by default.
    Raises `ConfigError` when the service's user could not read the Python environment, `MissingExtra` without a broker's program.
    """
    root = root.absolute()
    folder = assets()
    templates = {path.name: path.read_text("utf-8") for path in _templates(folder)}
    flower = {"flowerconfig.py": _flower_folder(folder).joinpath("flowerconfig.py").read_text("utf-8")}
    config = below(root, CONFIG_FOLDER)
    count = brokers.wanted_count(config / brokers.SETTINGS, data_shards)
    server = find_server(below(root, STATE_FOLDER) / f"broker-{brokers.CONTROL}")
    program = server_at(server)
    places = Places(
        prefix=Path(sys.prefix),
        server=server,
        systemd_version=installed_version(),
        data_brokers=count,
        users=program is not None and program.version >= SINCE,
        listen=brokers.installed_listen(config, listen),
        ending=brokers.ending(config),
    )
    steps, notes = plan(root, places, templates, flower), list(brokers.notes(config, count, places.listen))
    hidden = hidden_from_service((places.prefix, Path(sys.executable).resolve(), places.server), home_folders())
    if dry_run:
        return [*([f"warning: {hidden}"] if hidden else []), *(f"would {step}" for step in steps), *notes, _next_command(dry_run=True)]
    if hidden:
        raise ConfigError(hidden)
    _check_root(root)
    return [*(carry_out(step) for step in steps), *notes, _next_command(dry_run=False)]


def plan_removal(root: Path, names: Sequence[str]) -> list[Step]:
    """What a removal of the units of these names below `root` does, in order; settings, runs and the user who owns them stay. Pure."""
    paths = [*(below(root, UNIT_FOLDER) / name for name in names), below(root, SYSUSERS_FILE)]
    removed: list[Step] = [RemoveFile(path) for path in paths]
    if root != Path("/") or not names:
        return removed
    stopped = [RunCommand(("systemctl", "stop", "azq*")), RunCommand(("systemctl", "disable", *names))]
    return [*stopped, *removed, RunCommand(("systemctl", "daemon-reload"))]


def uninstall(*, root: Path = Path("/"), dry_run: bool = False) -> list[str]:
    """Stops what runs and removes the units below `root`, or only tells what that would do; returns one line a step."""
    root = root.absolute()
    names = [path.name for path in _templates(assets())]
    steps = plan_removal(root, [name for name in names if (below(root, UNIT_FOLDER) / name).exists()])
    if not dry_run:
        _check_root(root)
    summary = f"{below(root, CONFIG_FOLDER)} and {below(root, STATE_FOLDER)} are kept, with settings, passwords and runs"
    return [*(f"would {step}" if dry_run else carry_out(step) for step in steps), summary]


def hidden_from_service(paths: Iterable[Path], homes: Iterable[Path]) -> str:
    """Why the services could not start azq, which run with ProtectHome=yes; empty when they can."""
    folders = tuple(homes)
    for path in paths:
        if any(path.is_relative_to(home) for home in folders):
            return (
                f"{path} is hidden from services, which see no home folders; install azq and its interpreter elsewhere: "
                "`sudo make install` does so, in /opt/azq"
            )
    return ""


def home_folders() -> tuple[Path, ...]:
    try:
        root = pwd.getpwuid(0).pw_dir
    except KeyError:  # a container without names of users
        root = "/root"
    return Path("/home"), Path(root)


def assets() -> Path:
    """The folder with `systemd/`: beside the package in a checkout, below the environment's `share/azq` otherwise."""
    candidates = (Path(azq.__file__).resolve().parents[1], Path(sys.prefix) / "share" / "azq")
    for folder in candidates:
        if (folder / "systemd" / "azq.target").is_file():
            return folder
    raise ConfigError(f"unit templates are in neither of {', '.join(str(folder / 'systemd') for folder in candidates)}; install azq again")


def _templates(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "systemd").iterdir() if path.name.startswith("azq"))


def _check_root(root: Path) -> None:
    if root == Path("/") and os.geteuid() != 0:
        raise ConfigError("installing units needs root: use sudo, or --root FOLDER, or --dry-run")


def _flower_folder(folder: Path) -> Path:
    return folder / "ops" / "flower" if (folder / "ops" / "flower").is_dir() else folder / "flower"


def below(root: Path, path: Path) -> Path:
    """Where an absolute path is in a host's root folder."""
    return root / path.relative_to("/")


def _next_command(*, dry_run: bool) -> str:
    then = "then start" if dry_run else "installed; start"
    return f"{then} with: systemctl enable --now azq.target azq-worker@selfplay.cpu azq-worker@eval.cpu azq-inference@cpu azq-learner@RUN"


def _has_name(line: str) -> bool:
    """True where `@NAME@` with capital letters is left; `azq-worker@.service` and `user@host` are not."""
    parts = line.split("@")
    return any(part and part.replace("_", "").isalpha() and part.isupper() for part in parts[1:-1])
