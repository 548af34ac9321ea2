"""What every azq process does first: die with the process that started it, log under its role, translate errors to exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from azq import logs
from azq.config import Config, load
from azq.config.host import HostSections
from azq.config.loading import section_of
from azq.errors import AzqError, ExitCode
from azq.process.liveness import waits_for_brokers
from azq.wire.keys import Role

# How a process of azq starts another Python program: `-P`, so that no file of the folder it is started in takes a library's place.
PYTHON = (sys.executable, "-P")
AZQ = (*PYTHON, "-m", "azq")  # a command of this azq begins so
ORDER = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # numbers of GPUs are nvidia-smi's, not those of some order of speed
PARENT_PIPE = "AZQ_PARENT_PIPE"  # in the environment of a child whose standard input is `parent_pipe`
MACHINE_SECTIONS = tuple(name for name in HostSections.model_fields if name != "home")


@cache
def parent_pipe() -> int:
    """Read end of a pipe that is never written to and that only this process holds open: its end of file is this process's death."""
    read_end, write_end = os.pipe()
    held = [write_end]

    def release() -> None:
        """In a fork, which would hold the pipe open beyond its parent's death."""
        while held:
            os.close(held.pop())
        parent_pipe.cache_clear()

    os.register_at_fork(after_in_child=release)
    return read_end


def bound_to_this(env: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of `Popen` for a process of azq that ends with this one."""
    return {"stdin": parent_pipe(), "env": {**env, PARENT_PIPE: "stdin"}}


def die_with_parent() -> None:
    """Sends SIGTERM to this process once its parent is dead, where that one started it with `bound_to_this`."""
    if os.environ.pop(PARENT_PIPE, ""):
        end_with(0, signal.SIGTERM)


def end_with(pipe: int, number: signal.Signals) -> None:
    """Sends this process a signal once the `parent_pipe` of another ends, because that one is dead: of its parent, or of what forked it."""

    def watch() -> None:
        while os.read(pipe, 1):
            pass
        os.kill(os.getpid(), number)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()


def run_main(role: str, main: Callable[[], int]) -> int:
    """Runs a process's main under its role's log; an `AzqError` becomes one line and its exit code."""
    logs.setup(role)
    die_with_parent()
    os.environ.setdefault(*ORDER)
    try:
        with waits_for_brokers():
            return main()
    except AzqError as error:
        logs.get(role).error("stopped", reason=str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)


def use_config(file: Path | None, overrides: Sequence[str], role: Role, *, tags: Sequence[str] = ()) -> Config:
    """The settings of a process; those of its role are also put into its environment, where Celery's app and children look."""
    extra = [f"worker.tags={json.dumps(list(tags))}"] if tags else []
    config = load(file, [*overrides, *extra])
    for name in filter(_is_machine_setting, tuple(os.environ)):
        del os.environ[name]
    os.environ.update(machine_environment(config, role))
    return config


def child_environment(config: Config, role: Role) -> dict[str, str]:
    """What a child finds in its environment: this process's, but for settings of the host, which are those of its role. Holds secrets."""
    return {**bare_environment(), **machine_environment(config, role)}


def bare_environment() -> dict[str, str]:
    """What a child finds that needs no setting of the host, and so no secret."""
    return {name: value for name, value in os.environ.items() if not _is_machine_setting(name)}


def foreign_environment() -> dict[str, str]:
    """This process's environment without anything that azq reads, for an azq that is none of this process's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AZQ_")}


def machine_environment(config: Config, role: Role) -> dict[str, str]:
    """The machine sections as `AZQ_` variables, so that child processes see exactly these settings. Holds secrets: never log it.

    Tokens of the REST interface and the webhook of notices are the daemon's alone; the store's secrets belong to all, for each role
    reads weights.
    """
    sections = {name: getattr(config, name).model_dump(mode="json") for name in MACHINE_SECTIONS}
    sections["store"]["options"] = config.store.revealed_options()
    sections["daemon"] |= _tokens(config) if role == "daemon" else {"token": "", "tokens": {}}
    sections["notices"]["webhook"] = config.notices.webhook.get_secret_value() if role == "daemon" else ""
    return {"AZQ_HOME": str(config.home.absolute()), **{f"AZQ_{name.upper()}": json.dumps(values) for name, values in sections.items()}}


def _tokens(config: Config) -> dict[str, Any]:
    named = {name: {"token": entry.token.get_secret_value(), "scope": entry.scope} for name, entry in config.daemon.tokens.items()}
    return {"token": config.daemon.token.get_secret_value(), "tokens": named}


def _is_machine_setting(variable: str) -> bool:
    """Whether an environment variable sets what `machine_environment` sets, or lets a machine in."""
    return section_of(variable) in (*MACHINE_SECTIONS, "join_token")
