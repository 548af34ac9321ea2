"""What a join writes and starts: settings and a certificate that all may read, addresses with passwords for the owner alone, units."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from azq.config import BudgetConfig, MachineConfig, load, merge
from azq.config.host import data_settings
from azq.config.loading import to_toml
from azq.errors import ConfigError, StateConflict
from azq.host.devices import Machine, Wishes
from azq.host.devices import plan as plan_devices
from azq.host.machine_end import ending_units
from azq.host.systemd import install
from azq.host.systemd.brokers import addresses_in
from azq.host.systemd.install import Places
from azq.host.systemd.steps import RunCommand, Step, WriteFile
from azq.wire.connect import address
from azq.wire.kinds import Kind, queue_name

SETTINGS, SECRETS, CERTIFICATE = "azq.toml", "azq.env", "broker.pem"
OF_MACHINES = (*Kind, "inference")  # what suits a machine is among these
ROLES = (*OF_MACHINES, "learner", "rank", "daemon", "gateway", "broker")
OF_RUNS = ("learner", "rank")


@dataclass(frozen=True, slots=True)
class Membership:
    """Where the fleet is, with passwords, and what it is agreed on."""

    control_url: str
    data_urls: tuple[str, ...]
    store_url: str
    lease_s: float
    heartbeat_s: float
    tags: tuple[str, ...] = ()
    certificate: str = ""  # PEM: what the brokers are verified with
    anchors: str = ""  # the file that it is kept in
    runs: tuple[str, ...] = ()  # that run now, for who trains
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # settings of this machine alone, by section

    def settings(self) -> str:
        """`azq.toml`, without secrets."""
        values: dict[str, Any] = {
            "broker": {"control_url": address(self.control_url), **self._data(address), **self._trust()},
            "store": {"url": self.store_url},
            "daemon": {"lease_s": self.lease_s},  # of the jobs that this machine claims
            "worker": {"tags": list(self.tags), "heartbeat_s": self.heartbeat_s},
        }
        values = merge(values, self.own)
        return f"# Written by azq join; the brokers' passwords are in {SECRETS}. `azq config show` lists every key.\n\n{to_toml(values)}"

    def secrets(self) -> str:
        """`azq.env`: the addresses with passwords, over those of `azq.toml`."""
        lines = [f"AZQ_BROKER__CONTROL_URL={self.control_url}"]
        lines += [f"AZQ_BROKER__{name.upper()}={_plain(value)}" for name, value in self._data(str).items()]
        return "\n".join(lines) + "\n"

    def overrides(self) -> list[str]:
        """The same as `section.key=value`."""
        data = [f"broker.{name}={json.dumps(value)}" for name, value in self._data(str).items()]
        trust = [f"broker.{name}={json.dumps(value)}" for name, value in self._trust().items()]
        return [f'broker.control_url="{self.control_url}"', *data, *trust]

    def _trust(self) -> dict[str, str]:
        return {"tls_ca": self.anchors} if self.certificate else {}

    def _data(self, shown: Callable[[str], str]) -> dict[str, Any]:
        """The settings that name the data planes; one plane has its own key."""
        return data_settings([shown(url) for url in self.data_urls])


@dataclass(frozen=True, slots=True)
class Service:
    """One service: `azq worker` on an instance that is its queues, `inference` on its device, `learner` on its run; others have none."""

    kind: Literal["worker", "inference", "learner", "daemon", "gateway"]
    instance: str = ""
    concurrency: int = 1
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def unit(self) -> str:
        return f"azq-{self.name}.service"

    @property
    def name(self) -> str:
        return f"{self.kind}@{self.instance}" if self.instance else self.kind

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `azq` on the command line."""
        match self.kind:
            case "inference":
                return ("inference", "--device", self.instance)
            case "learner":
                return ("learner", "--run", self.instance)
            case "worker":
                return ("worker", "--queues", self.instance, "--concurrency", str(self.concurrency))
        return (self.kind,)

    def sizing(self) -> dict[str, str]:
        """What its unit finds in its environment besides what all of its kind do."""
        return {"AZQ_WORKER__CONCURRENCY": str(self.concurrency)} if self.kind == "worker" else dict(self.environment)

    def __str__(self) -> str:
        jobs = f", {self.concurrency} jobs at once" if self.concurrency > 1 else ""
        rank = dict(self.environment).get("RANK", "")
        return f"azq-{self.name}{jobs}{f', rank {rank}' if rank else ''}"


def parse_roles(text: str, machine: Machine) -> tuple[str, ...]:
    """Roles of a comma-separated list; where it is empty, all that suit the machine: without GPUs none for inference."""
    if not text:
        return tuple(Kind) if all(gpu.trouble for gpu in machine.gpus) else OF_MACHINES
    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not wanted or (unknown := [role for role in wanted if role not in ROLES]):
        raise ConfigError(f"--roles {text!r} names {unknown[0] if wanted else 'nothing'!r}; there are: {', '.join(ROLES)}")
    return wanted


@dataclass(frozen=True, slots=True)
class Training:
    """What a machine that trains works on: runs, and its place among their ranks where other machines have further ones."""

    runs: tuple[str, ...] = ()
    rank: int | None = None  # 0: the learner, whose other ranks are started elsewhere
    learner: str = ""  # rank 0's machine, as the others know it
    interface: str = ""  # that leads there

    def services(self) -> Iterator[Service]:
        place = {"RANK": str(self.rank), "LOCAL_RANK": "0", "MASTER_ADDR": self.learner} if self.rank is not None else {}
        if place and self.interface:
            place |= {f"{library}_SOCKET_IFNAME": self.interface for library in ("GLOO", "NCCL")}
        for run in self.runs:
            yield Service("learner", run, environment=tuple(place.items()))


def check_training(roles: Sequence[str], rank: int | None, learner_host: str = "") -> None:
    """Raises `ConfigError` for a rank without its number, for a number that is not one of these roles', and for a host without either."""
    if learner_host and rank is None:
        raise ConfigError(f"--learner-host {learner_host} is for ranks of several machines: give this one's number with --rank")
    if "rank" in roles and "learner" in roles:
        raise ConfigError("a learner starts the other ranks of its machine itself, by learner.ranks; leave one of the two roles out")
    if "rank" in roles and not rank:
        raise ConfigError("a rank needs its number: --rank 1, 2, ...; 0 is the learner's")
    if rank is not None and not ("rank" in roles or ("learner" in roles and rank == 0)):
        raise ConfigError(f"--rank {rank} goes with the role rank, and --rank 0 with the learner whose ranks are on other machines")


def services(
    machine: Machine, roles: Sequence[str], tags: Sequence[str] = (), concurrency: int | None = None, training: Training | None = None
) -> tuple[Service, ...]:
    """The services of these roles: a worker on all tags for self-play and one for evaluation jobs, an inference worker a device, ..."""
    all_tags = tuple(dict.fromkeys((*machine.tags, *tags)))
    trains = "auto" if set(OF_RUNS) & set(roles) else ""
    devices = plan_devices(machine, Wishes("auto" if "inference" in roles else "", learner=trains, concurrency=concurrency or 0))
    chosen = [Service(kind) for kind in ("daemon", "gateway") if kind in roles]
    chosen += [Service("inference", device) for device in devices.inference]
    chosen += list(training.services()) if training and trains else []
    if Kind.SELFPLAY in roles:
        chosen.append(Service("worker", _queues(Kind.SELFPLAY, all_tags), devices.processes))
    if Kind.EVAL in roles:
        chosen.append(Service("worker", _queues(Kind.EVAL, all_tags)))
    return tuple(chosen)


def _queues(kind: Kind, tags: Sequence[str]) -> str:
    return ":".join(queue_name(kind, tag) for tag in tags)


@dataclass(frozen=True, slots=True)
class FilePlan:
    """A file that is to be: the step that writes it, or None where it stays, and what is said of that."""

    path: Path
    step: WriteFile | None
    notes: tuple[str, ...] = ()


def plan_files(folder: Path, member: Membership, force: bool) -> list[FilePlan]:
    """The files below a folder. One that is there and differs stays as it is, and the difference is shown, unless `force`.

    Raises `StateConflict` where the secrets that are there lead to other brokers: nothing here would work for this fleet then.
    """
    secrets, settings = folder / SECRETS, folder / SETTINGS
    return [
        _plan(secrets, member.secrets(), 0o600, force=force, secret=True),
        # The token vouched for it today, whatever was there before.
        *([_plan(folder / CERTIFICATE, member.certificate, force=True)] if member.certificate else []),
        _plan(settings, member.settings(), force=force),
    ]


def _plan(path: Path, wanted: str, mode: int = 0o644, *, force: bool, secret: bool = False) -> FilePlan:
    there = _read(path)
    step = WriteFile(path, lambda: wanted, mode, secret=secret)
    if there is None or (secret and not _addresses(there)):
        return FilePlan(path, step)
    if _meaning(there) == _meaning(wanted):
        return FilePlan(path, None, (f"{path} is as it should be",))
    if force:
        return FilePlan(path, step, (f"{path} is replaced",))
    if secret:
        raise StateConflict(f"{path} leads to {' and '.join(_addresses(there))}, with other passwords or addresses; --force replaces it")
    return FilePlan(path, None, (f"{path} is kept; --force would change it:", *difference(there, wanted)))


def difference(there: str, wanted: str) -> Sequence[str]:
    """The lines that differ, as `-` there and `+` wanted."""
    lines = difflib.unified_diff(_meaning(there), _meaning(wanted), lineterm="", n=0)
    return [f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@"))]


def _meaning(text: str) -> list[str]:
    """Its lines but for comments and blank ones."""
    return [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]


def _addresses(text: str) -> list[str]:
    return [address(url) for url in addresses_in(line for line in _meaning(text) if line.startswith("AZQ_BROKER__"))]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(path: Path) -> str | None:
    try:
        return path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StateConflict(f"{path} is there and cannot be read: {error}; mend or move it") from None


ENDING = ("azq-machine.service", "azq-machine-end.path", "azq-machine-end.service", "azq-deadman.service", "azq-deadman.timer")
TEMPLATES = ("azq-inference@.service", "azq-worker@.service", "azq.slice", *ENDING)
OF_KINDS = {"learner": "azq-learner@.service", "daemon": "azq-daemon.service", "gateway": "azq-gateway.service"}
TARGET, JOINED_TARGET = "azq.target", "joined.target"


def runs_here() -> bool:
    """Whether a systemd is PID 1 and this process may tell it what to do."""
    return Path("/run/systemd/system").is_dir() and os.geteuid() == 0


def read_templates(services: Sequence[Service] = ()) -> dict[str, str]:
    """The units that a joined machine has for these services, by the name they get."""
    folder = install.assets() / "systemd"
    wanted = dict.fromkeys(OF_KINDS[service.kind] for service in services if service.kind in OF_KINDS)
    named = {name: (folder / name).read_text("utf-8") for name in (*TEMPLATES, *wanted)}
    return {**named, TARGET: (folder / JOINED_TARGET).read_text("utf-8")}


def check_readable(places: Places) -> None:
    """Raises `ConfigError` where services could not start this azq."""
    if hidden := install.hidden_from_service((places.prefix, Path(sys.executable).resolve()), install.home_folders()):
        raise ConfigError(hidden)


def here() -> Places:
    """This installation. A joined machine runs no broker, so none is looked for."""
    return Places(prefix=Path(sys.prefix), server=Path("none"), systemd_version=install.installed_version(), users=False)


def plan_units(
    member: Membership,
    services: Sequence[Service],
    places: Places,
    templates: Mapping[str, str],
    force: bool,
    root: Path = Path("/"),
) -> tuple[list[Step], list[str]]:
    """The steps of a join, in order, and what is to be said of files that stay. `root` is where files are looked for."""
    config, folder = install.below(root, install.CONFIG_FOLDER), install.below(root, install.UNIT_FOLDER)
    files = plan_files(config, member, force)
    for service in services:
        if service.sizing():
            files.append(sizing(folder, service, force))
    shown = {name: install.render(text, places.variables()) for name, text in templates.items() if not _keeps_brokers(folder, name)}
    units = [_plan(folder / name, text, force=True) for name, text in shown.items()]
    changed = any(plan.step for plan in (*files, *units))
    names = (*(service.unit for service in services), *_ending(config / SETTINGS, member, files))
    steps: list[Step] = [
        *install.first_steps(root, places),
        *(file.step for file in (*files, *units) if file.step),
        RunCommand(("systemctl", "daemon-reload")),
        RunCommand(("systemctl", "enable", TARGET, *names)),
        # Services that play by these settings already go on with their games.
        RunCommand(("systemctl", "restart" if changed else "start", TARGET, *names)),
    ]
    return steps, [note for file in files for note in file.notes]


def _ending(settings: Path, member: Membership, files: Sequence[FilePlan]) -> tuple[str, ...]:
    """Units of what ends this machine, by the settings that it will have: those that are written, or its own that stay."""
    if any(file.step for file in files if file.path == settings):
        return ending_units(MachineConfig(**member.own.get("machine", {})), BudgetConfig(**member.own.get("budget", {})))
    config = load(settings)
    return ending_units(config.machine, config.budget)


def sizing(folder: Path, service: Service, force: bool) -> FilePlan:
    """The drop-in of a unit: how many jobs at once, or which rank."""
    text = "[Service]\n" + "".join(f"Environment={name}={value}\n" for name, value in service.sizing().items())
    return _plan(folder / f"{service.unit}.d" / ("concurrency.conf" if service.kind == "worker" else "rank.conf"), text, force=force)


def _keeps_brokers(folder: Path, name: str) -> bool:
    """The first machine joins its own fleet: its target goes on to hold brokers and daemon."""
    return name == TARGET and (folder / "azq-broker@.service").exists()
