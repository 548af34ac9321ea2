"""A real systemd in a namespace of its own, with azq installed in /opt/azq: see boot-namespace.sh."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

import azq

SCRIPT = Path(__file__).with_name("boot-namespace.sh")
DEPENDENCIES = Path(typer.__file__).resolve().parents[1]  # an environment may share those of another
REPOSITORY = Path(azq.__file__).resolve().parents[1]
PACKAGES = ("azq", "daemon", "workers", "ops", "systemd")
LIFE_S = 400


def why_not() -> str:
    """Why no systemd can be booted here; empty where one can."""
    return subprocess.run(["bash", str(SCRIPT), "check"], capture_output=True, text=True, check=False).stderr.strip()


def lay_out_checkout(folder: Path, prefix: Path) -> None:
    """A copy of this checkout without what was built, and the dependencies of its locks as `make` would install them below a prefix."""
    names = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in names.decode().split("\0"):
        if name and (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, folder / name)
    make_site(prefix)
    write_script(prefix, "celery", "celery.__main__")
    (prefix / ".deps").touch()


def make_site(prefix: Path) -> Path:
    """Where an environment has its packages and its programs; packages of the present one are found by path."""
    (prefix / "bin").mkdir(parents=True)
    site = prefix / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (site / "dependencies.pth").write_text("/opt/site\n")
    return site


def lay_out(prefix: Path) -> None:
    """An environment for /opt/azq out of the present one: copies of azq's own packages, the rest by path."""
    site = make_site(prefix)
    for name in PACKAGES:
        shutil.copytree(REPOSITORY / name, site / name, ignore=shutil.ignore_patterns("__pycache__", "bench"))
    for module in ("azq._core", "azq._nn", "azq._nn_avx2", "azq._nn_plain"):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            shutil.copy(spec.origin, site / "azq")
    (prefix / "bin" / "python3").symlink_to(f"/opt/python/bin/{Path(os.path.realpath(sys.executable)).name}")
    (prefix / "pyvenv.cfg").write_text("home = /opt/python/bin\ninclude-system-site-packages = false\n")
    for name, module in (("azq", "azq.cli.app"), ("celery", "celery.__main__")):
        write_script(prefix, name, module)


def write_script(prefix: Path, name: str, module: str) -> None:
    """A program as pip would install it."""
    script = prefix / "bin" / name
    script.write_text(f"#!/opt/azq/bin/python3\nimport sys\nfrom {module} import main\nsys.exit(main())\n")
    script.chmod(0o755)


class Namespace:
    """One booted systemd; the end of its `with` block ends it and all that runs in it."""

    def __init__(self, folder: Path, checkout: str = "", life_s: int = LIFE_S) -> None:
        """Azq is there already, or else to be installed from a `checkout` in that folder inside."""
        self._state = folder / "state"
        binds = [f"{folder / 'opt'}:/opt", f"{sys.base_prefix}:/opt/python", f"{DEPENDENCIES}:/opt/site"]
        prefix = folder / "opt" / "azq"  # no mount itself, so that it can be removed
        if checkout:
            lay_out_checkout(folder / "checkout", prefix)
            binds.append(f"{folder / 'checkout'}:{checkout}")
        else:
            lay_out(prefix)
        options = [word for bind in binds for word in ("--bind", bind)]
        subprocess.run(["bash", str(SCRIPT), "boot", str(self._state), *options, "--max", str(life_s)], check=True, timeout=60)
        self.run("sh", "-c", "echo /opt/python/lib > /etc/ld.so.conf.d/python.conf; ldconfig")

    def __enter__(self) -> Namespace:
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["bash", str(SCRIPT), "halt", str(self._state)], check=False, timeout=60)

    def run(self, *command: str, check: bool = True, timeout_s: float = 90.0) -> str:
        """What a command inside printed."""
        inside = ["bash", str(SCRIPT), "exec", str(self._state), "--", *command]
        done = subprocess.run(inside, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.run("systemctl", "show", "-P", name, unit).strip()

    def signal(self, unit: str, name: str) -> None:
        """Sends a signal to a service's main process, behind systemd's back."""
        self.run("kill", f"-{name}", self.show(unit, "MainPID"))

    def journal(self, unit: str) -> list[dict[str, Any]]:
        """Everything that a unit and systemd said of it, oldest first."""
        lines = self.run("journalctl", "--no-pager", "-q", "-o", "json", "-u", unit).splitlines()
        return [json.loads(line) for line in lines]

    def messages(self, unit: str) -> list[str]:
        """The journal's bare lines."""
        return [str(entry.get("MESSAGE", "")) for entry in self.journal(unit)]

    def http(self, method: str, path: str, body: object = None) -> Any:
        """An answer of the daemon, or None where it is away."""
        data = [] if body is None else ["-H", "content-type: application/json", "-d", json.dumps(body)]
        answer = self.ask_daemon(path, "-f", "-X", method, *data)
        return json.loads(answer) if answer else None

    def counted(self, what: str) -> int:
        """A count of the run's ledger; 0 where the daemon is away."""
        return int((self.http("GET", "/v1/runs/ttt/ledger") or {}).get(what, 0))

    def ask_daemon(self, path: str, *options: str) -> str:
        """What the daemon answers curl, which shows the token that the daemon made for itself; empty where it is away."""
        script = 'curl -s -H "Authorization: Bearer $(cat /var/lib/azq/runs/.token)" "$@"'
        return self.run("sh", "-c", script, "curl", *options, f"http://127.0.0.1:8080{path}", check=False)

    def until(self, condition: Callable[..., Any], what: str, timeout_s: float = 120.0) -> Any:
        """The first true answer of a condition."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if answer := condition():
                return answer
            threading.Event().wait(0.1)
        raise AssertionError(f"{what} did not come within {timeout_s:g} s")
