"""Installs the systemd units: the steps are planned by a pure function, then printed or carried out."""

from __future__ import annotations

import os
import pwd
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import azq
from azq.bus.server_program import find_server, server_at
from azq.errors import DO_NOT_RESTART, ConfigError, ExitCode
from azq.host.fronts import Listen
from azq.host.systemd import brokers, fronts
from azq.host.systemd.steps import MakeFolder, RunCommand, Step, WriteFile, carry_out
from azq.wire.acl import ROLES, SINCE
from azq.wire.keys import Role
from azq.wire.shards import data_names

USER = "azq"
UNIT_FOLDER = Path("/etc/systemd/system")
CONFIG_FOLDER = Path("/etc/azq")
SETTINGS = "azq.toml"
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

    @property
    def roles(self) -> tuple[str, ...]:
        """The planes whose brokers run here, control first."""
        return (brokers.CONTROL, *data_names(self.data_brokers))

    def variables(self) -> dict[str, str]:
        """What the unit templates name between at signs."""
        return {
            "USER": self.user,
            "SEED": _SEED if self.users else "# This server keeps no users: everybody has its one password.",
            "ACLFILE": " --aclfile @STATE@/broker-%i/users.acl" if self.users else "",
            **{f"{role.upper()}_ENV": brokers.role_file(role) if self.users else "azq.env" for role in ROLES},
            "BIN": str(self.prefix / "bin"),
            "CONFIG": str(self.config),
            "STATE": str(self.state),
            "SERVER": str(self.server),
            "DATA_BROKERS": " ".join(f"azq-broker@{role}.service" for role in data_names(self.data_brokers)),
            "FRONTS": fronts.units(self.listen, self.roles),
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
    config = _below(root, places.config)
    roles = places.roles
    told = fronts.settings(places.config, places.listen, places.data_brokers)
    renews = _renews(config, places.data_brokers)
    steps: list[Step] = [
        WriteFile(_below(root, SYSUSERS_FILE), lambda: f'u {places.user} - "azq" {places.state}\n', 0o644),
        RunCommand(("systemd-sysusers", f"--root={root}", str(SYSUSERS_FILE))),
        MakeFolder(config, 0o755),
        MakeFolder(_below(root, UNIT_FOLDER), 0o755),
    ]
    # Secrets are read by the service manager, which is root, and handed to the service: nobody else needs to read them.
    steps += [WriteFile(config / f"broker-{role}.conf", partial(brokers.conf, role), 0o600, keep=True, secret=True) for role in roles]
    steps += [
        WriteFile(config / "azq.env", partial(_environment, config, roles), 0o600, keep=not renews, secret=True),
        *_role_files(config, places),
        WriteFile(config / "flower.env", lambda: f"FLOWER_BASIC_AUTH=ops:{secrets.token_hex(16)}\n", 0o600, keep=True, secret=True),
        WriteFile(config / SETTINGS, partial(brokers.host_settings, places.data_brokers, told), 0o644, keep=_keeps_settings(config)),
        *fronts.steps(config, places.listen, roles),
        *(WriteFile(config / name, _constant(text), 0o644, keep=True) for name, text in sorted(files.items())),
    ]
    for name, template in sorted(templates.items()):
        steps.append(WriteFile(_below(root, UNIT_FOLDER) / name, _constant(render(template, places.variables())), 0o644))
    if root == Path("/"):
        steps.append(RunCommand(("systemctl", "daemon-reload")))
    return steps


def install(*, root: Path = Path("/"), dry_run: bool = False, data_shards: int | None = None, listen: str | None = None) -> list[str]:
    """Installs below `root`, or only tells what that would do; returns one line a step.

    `data_shards`: data planes of this host; those of its azq.toml by default, else one.
    `listen`: HOST[:PORT] at which other machines reach them over TLS; that of an installation before this one by default.
    Raises `ConfigError` when the service's user could not read the Python environment, `MissingExtra` without a broker's program.
    """
    root = root.absolute()
    folder = assets()
    templates = {path.name: path.read_text("utf-8") for path in sorted((folder / "systemd").iterdir()) if path.name.startswith("azq")}
    flower = {"flowerconfig.py": _flower_folder(folder).joinpath("flowerconfig.py").read_text("utf-8")}
    config = _below(root, CONFIG_FOLDER)
    count = brokers.wanted_count(config / SETTINGS, data_shards)
    server = find_server(_below(root, STATE_FOLDER) / f"broker-{brokers.CONTROL}")
    found = server_at(server)
    places = Places(
        prefix=Path(sys.prefix),
        server=server,
        systemd_version=installed_version(),
        data_brokers=count,
        users=found is not None and found.version >= SINCE,
        listen=fronts.installed(config, listen),
    )
    steps, notes = plan(root, places, templates, flower), [*_notes(config, count), *fronts.notes(config / SETTINGS, places.listen)]
    hidden = hidden_from_service((places.prefix, Path(sys.executable).resolve(), places.server), home_folders())
    if dry_run:
        return [*([f"warning: {hidden}"] if hidden else []), *(f"would {step}" for step in steps), *notes, _next_command(dry_run=True)]
    if hidden:
        raise ConfigError(hidden)
    if root == Path("/") and os.geteuid() != 0:
        raise ConfigError("installing units needs root: use sudo, or --root FOLDER, or --dry-run")
    return [*(carry_out(step) for step in steps), *notes, _next_command(dry_run=False)]


def hidden_from_service(paths: Iterable[Path], homes: Iterable[Path]) -> str:
    """Why the services could not start azq, which run with ProtectHome=yes; empty when they can."""
    folders = tuple(homes)
    for path in paths:
        if any(path.is_relative_to(home) for home in folders):
            return f"{path} is hidden from services, which see no home folders; install azq and its interpreter elsewhere, say in /opt/azq"
    return ""


def home_folders() -> tuple[Path, ...]:
    """The folders that ProtectHome=yes hides."""
    return Path("/home"), Path(pwd.getpwuid(0).pw_dir)


def assets() -> Path:
    """The folder with `systemd/`: beside the package in a checkout, below the environment's `share/azq` otherwise."""
    candidates = (Path(azq.__file__).resolve().parents[1], Path(sys.prefix) / "share" / "azq")
    for folder in candidates:
        if (folder / "systemd" / "azq.target").is_file():
            return folder
    raise ConfigError(f"unit templates are in neither of {', '.join(str(folder / 'systemd') for folder in candidates)}; install azq again")


def _flower_folder(folder: Path) -> Path:
    return folder / "ops" / "flower" if (folder / "ops" / "flower").is_dir() else folder / "flower"


def _below(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _constant(text: str) -> Callable[[], str]:
    return lambda: text


def _environment(config: Path, roles: Iterable[str]) -> str:
    """The brokers' addresses, with the passwords of their settings, which exist by then."""
    passwords = {role: brokers.password(config / f"broker-{role}.conf") for role in roles}
    present = _present(config)
    return brokers.renewed(present, passwords) if present else brokers.environment(passwords)


def _role_files(config: Path, places: Places) -> Iterator[WriteFile]:
    """What each role's services read, from the owner's `azq.env` as it is by then."""
    for role in ROLES if places.users else ():
        made = partial(_role_environment, config, role)
        yield WriteFile(config / brokers.role_file(role), made, 0o600, secret=True)


def _role_environment(config: Path, role: Role) -> str:
    return brokers.role_environment(_present(config), role)


def _present(config: Path) -> str:
    path = config / "azq.env"
    return path.read_text("utf-8") if path.exists() else ""


def _renews(config: Path, count: int) -> bool:
    return brokers.is_renewed(_present(config), count)


def _keeps_settings(config: Path) -> bool:
    return brokers.has_settings(config / SETTINGS)


def _notes(config: Path, count: int) -> list[str]:
    """What an operator must do or know beyond the steps."""
    if _renews(config, count):
        return ["the data planes change: `systemctl restart azq.target` starts them and lets every service read the new addresses"]
    if brokers.leads_elsewhere(_present(config)):
        return [f"{config / 'azq.env'} names data planes of other hosts and is kept; those of this host are used once it names them"]
    return []


def _next_command(*, dry_run: bool) -> str:
    then = "then start" if dry_run else "installed; start"
    return f"{then} with: systemctl enable --now azq.target azq-worker@selfplay.cpu azq-worker@eval.cpu azq-inference@cpu azq-learner@RUN"


def _has_name(line: str) -> bool:
    """True where `@NAME@` with capital letters is left; `azq-worker@.service` and `user@host` are not."""
    parts = line.split("@")
    return any(part and part.replace("_", "").isalpha() and part.isupper() for part in parts[1:-1])
