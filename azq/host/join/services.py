"""Which services a machine that joins runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from azq.errors import ConfigError
from azq.host.devices import Wishes, plan
from azq.host.hardware import Machine
from azq.wire.kinds import Kind, queue_name

ROLES = (*Kind, "inference")


@dataclass(frozen=True, slots=True)
class Service:
    """One service: `azq worker` on an instance that is its queues, or `azq inference` on one that is its device."""

    kind: Literal["worker", "inference"]
    instance: str
    concurrency: int = 1

    @property
    def unit(self) -> str:
        return f"azq-{self.kind}@{self.instance}.service"

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `azq` on the command line."""
        if self.kind == "inference":
            return ("inference", "--device", self.instance)
        return ("worker", "--queues", self.instance, "--concurrency", str(self.concurrency))

    def __str__(self) -> str:
        jobs = f", {self.concurrency} jobs at once" if self.concurrency > 1 else ""
        return f"azq-{self.kind}@{self.instance}{jobs}"


def parse_roles(text: str, machine: Machine) -> tuple[str, ...]:
    """Roles of a comma-separated list; all that suit the machine where it is empty. A CPU evaluates leaves only when it is told to."""
    if not text:
        return tuple(Kind) if all(gpu.trouble for gpu in machine.gpus) else ROLES
    wanted = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not wanted or (unknown := [role for role in wanted if role not in ROLES]):
        raise ConfigError(f"--roles {text!r} names {unknown[0] if wanted else 'nothing'!r}; there are: {', '.join(ROLES)}")
    return wanted


def services(machine: Machine, roles: Sequence[str], tags: Sequence[str] = (), concurrency: int | None = None) -> tuple[Service, ...]:
    """The services of these roles: a worker on all tags for self-play and one for evaluation jobs, an inference worker a device."""
    all_tags = tuple(dict.fromkeys((*machine.tags, *tags)))
    devices = plan(machine, Wishes("auto" if "inference" in roles else "", concurrency=concurrency or 0))
    found = [Service("inference", device) for device in devices.inference]
    if Kind.SELFPLAY in roles:
        found.append(Service("worker", _queues(Kind.SELFPLAY, all_tags), devices.processes))
    if Kind.EVAL in roles:
        found.append(Service("worker", _queues(Kind.EVAL, all_tags)))
    return tuple(found)


def _queues(kind: Kind, tags: Sequence[str]) -> str:
    return ":".join(queue_name(kind, tag) for tag in tags)
