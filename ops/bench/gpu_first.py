"""The first nine minutes on a GPU: steps by worth under one deadline, of which each leaves its figures whatever comes after.

Usage: gpu_first.py WHEELS OUT [STEP ...] [--left 540] [--device cuda:0] [--venv FOLDER] [--small]
WHEELS is the folder that carry_wheels.py filled; the Python that runs this has PyTorch. OUT gets log.txt and results.json, written after
each step. A second call in the same OUT, or beside the same environment, goes on with what is missing, then with what failed.
`gpu_rows.py OUT/results.json` makes rows of docs/benchmarks.md of them. `--small` is a rehearsal with tiny networks, for `--device cpu`
too. The exit code is that of the first step that failed, or 124 where the time was too short.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_machine import machine_facts, problems

REPO = Path(__file__).resolve().parents[2]
RTC = "TORCH_CUDNN_V8_API_RTC_ENABLED"
OUT_OF_TIME = 124
GRACE_S = 20.0  # after a step's time, until it is killed
MOST_FIGURES, MOST_LOG_BYTES = 12, 2 << 20  # of a step
SLOW_S = 120.0  # of recording graphs, near what an inference worker has until it must serve
EVENTS = ("way_chosen", "way_skipped", "weights_switched", "weights_refused", "forward_pass_failed", "child_died")
#: a part of what pip and CUDA say, in small letters -> what to do about it, where azq does not say so itself
REMEDIES = {
    "not a supported wheel": "fill WHEELS by `carry_wheels.py --python` with a Python of this version",
    "no module named 'azq'": "WHEELS has no wheel of azq; fill it by `carry_wheels.py`",
    "no space left": "free some, or give --venv and TMPDIR on another disk",
    "ensurepip": "this Python has no pip; on Debian: apt-get install python3-venv",
}


@dataclass(frozen=True)
class Size:
    """What is measured, and for how long."""

    blocks: int = 5
    channels: int = 128
    batch: int = 8192
    learner_batch: int = 16384
    processes: int = 4
    threads: int = 3
    seconds: float = 15.0
    minutes: float = 1.0  # of `azq up`
    settings: tuple[str, ...] = ("worker.concurrency=4",)  # memory that grows with use looks too small for four
    preset: tuple[str, ...] = ("--preset", "sprint")


SMALL_RUN = ("network.blocks=1", "network.channels=8", "search.num_simulations=16", "learner.min_window=1000", "learner.batch_size=64")
SMALL = Size(1, 8, 64, 64, 2, 1, 5.0, 0.3, (*SMALL_RUN, "selfplay.games_in_flight=128", "inference.max_batch=64"), ())


@dataclass(frozen=True)
class Site:
    """Where everything is."""

    wheels: Path
    out: Path
    scratch: Path
    venv: Path
    device: str
    size: Size

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    def part(self, kind: str, num_simulations: int, settings: Sequence[str]) -> list[str]:
        """A part of `azq bench all` in a process of its own."""
        size = self.size
        network = {"kind": "resnet", "blocks": size.blocks, "channels": size.channels}
        case = {"name": "c4", "game": "connect_four", "network": network, "batch": size.batch, "learner_batch": size.learner_batch}
        asked = {
            "kind": kind,
            "num_simulations": num_simulations,
            "overrides": [f"worker.concurrency={size.processes if kind == 'selfplay' else 1}", *settings],
            "seconds": size.seconds,
            "device": self.device,
            "case": {**case, "threads": size.threads, "params": {}, "groups": 3},
        }
        return [self.python, "-m", "azq.parts.lab.bench.rig", "azq.parts.lab.bench.suite", "measure_part", json.dumps(asked)]

    def network(self, *words: str) -> list[str]:
        size = self.size
        shape = [f"--blocks={size.blocks}", f"--channels={size.channels}", f"--batch={size.batch}", f"--seconds={size.seconds / 5}"]
        return [self.python, str(REPO / "ops/bench/gpu_network.py"), f"--device={self.device}", *shape, *words]

    def run_settings(self, settings: Iterable[str]) -> list[str]:
        chosen = [f"inference.device={self.device}", f"learner.device={self.device}", *self.size.settings, *settings]
        return [word for text in chosen for word in ("--set", text)]


@dataclass(frozen=True)
class Command:
    """A process of a step; `alone`: what comes after it does not need it, and it may take so many seconds."""

    words: list[str]
    env: Mapping[str, str] = field(default_factory=dict)
    alone: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """What the network's figures say about how the steps after them are to run it. Pure."""

    settings: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, figures: Sequence[Mapping[str, Any]]) -> Chosen:
        """The fastest way is to be among those that are tried; one that takes minutes until it serves is not."""
        ways = [row for row in figures if "evaluations_per_s" in row]
        if not ways:
            return cls()
        best = max(ways, key=lambda row: row["evaluations_per_s"])
        settings: tuple[str, ...] = (f"inference.compile={str(best['way'] == 'compiled').lower()}",)  # never beside what is measured
        if any(row["way"] == "fused" and row["first_s"] > SLOW_S for row in ways):
            settings = (*settings, "inference.fused=false")
        return cls(settings, {RTC: "1"} if best["way"] == "fused" and best.get("rtc") == "1" else {})


@dataclass(frozen=True)
class Step:
    """Commands one after the other, with the seconds below which they are not begun and after which they are ended."""

    name: str
    least_s: float
    most_s: float
    commands: Callable[[Site, Chosen, float], list[Command]]


def install(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    """An environment in front of this Python's own packages, PyTorch among them; nothing where it is there already."""
    if is_installed(site):
        return []
    check = "import json, torch, azq, azq._core; print(json.dumps({'azq': azq.__file__, 'torch': torch.__version__}))"
    pip = [site.python, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    return [
        Command([sys.executable, "-m", "venv", "--clear", "--without-pip", str(site.venv)]),
        Command([sys.executable, __file__, "--link", str(site.venv)]),
        *([] if find_spec("pip") else [Command([site.python, "-m", "ensurepip"])]),
        Command([*pip, *map(str, sorted(site.wheels.glob("*.whl")))]),
        Command([site.python, "-P", "-c", check]),
    ]


def devices(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    """Whether this one can be used, by the words of `azq up` where it cannot."""
    plan = [site.python, "-m", "azq", "devices", "plan", "--json", *site.run_settings(())]
    return [Command([site.python, "-P", "-c", PICK.replace("DEVICE", site.device)]), Command(plan)]


def networks(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    """Each way in a process of its own: on some cuDNN one searches for minutes, and the others are to be measured all the same."""
    ways = (("plain", "0"), ("compiled", "0"), ("fused", "0"), ("fused", "1"))
    return [Command(site.network(f"--only={way}"), {RTC: rtc}, alone=60.0) for way, rtc in ways]


def learner(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    first = Command(site.network(f"--learner-batch={site.size.learner_batch}"), alone=40.0)
    return [first, Command(site.part("learner", 0, chosen.settings), chosen.env)]


def up(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    words = ["up", "--game", "connect_four", *site.size.preset, "--run", "first", "--until", f"minutes={site.size.minutes}", "--json"]
    settings = ["--set", "daemon.port=0", *site.run_settings(chosen.settings)]
    return [Command([site.python, "-m", "azq", *words, *settings], {**chosen.env, "AZQ_HOME": str(site.scratch / "home")})]


def peers(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    size, kind = site.size, "cuda" if site.device.startswith("cuda") else "cpu"
    shape = [f"--blocks={size.blocks}", f"--channels={size.channels}", f"--games={size.batch}", f"--device={kind}"]
    words = [site.python, str(REPO / "ops/bench/peers.py"), "pgx", str(size.seconds), *shape]
    return [Command([*words, f"--num-simulations={simulations}"]) for simulations in (200, 32)]


def strength(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    """Up to 1 % of errors; the rows say when it was at 4 %."""
    minutes = max(0.2, (limit_s - 3 * GRACE_S) / 60)
    track = {"title": "first", "game": "connect_four", "exam": "solver", "target": 0.01, "minutes": minutes, "num_simulations": 100}
    entry = {"track": "first", "class": "any", "author": "", "date": "", "new": "", "preset": "".join(site.size.preset[1:])}
    settings = (word.partition("=") for word in site.run_settings(chosen.settings) if word != "--set")
    lines = [f"{key} = {value if value in ('true', 'false') or value.isdecimal() else json.dumps(value)}" for key, _, value in settings]
    lines = [*(f"{name} = {json.dumps(value)}" for name, value in entry.items()), "[settings]", *lines]
    (site.scratch / "first.toml").write_text("\n".join(lines) + "\n")
    (site.scratch / "tracks.json").write_text(json.dumps({"classes": {"any": {"measure": "seconds"}}, "tracks": {"first": track}}))
    words = ["speedrun", "run", "first.toml", "--tracks", "tracks.json", "--seeds", "1", "--json"]
    return [Command([site.python, "-m", "azq", *words], chosen.env)]


def tests(site: Site, chosen: Chosen, limit_s: float) -> list[Command]:
    """Neither with the project's settings, which want plugins and take warnings of another PyTorch for errors, nor in its tree."""
    pytest = [site.python, "-P", "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(REPO), "-p", "no:cacheprovider", "-W", "ignore"]
    paths = ["-o", f"pythonpath={REPO}/tests {REPO}/tests/support", "--import-mode=importlib", "-m", "gpu and not slow", "--tb=short"]
    files = [str(REPO / "tests/unit" / name) for name in ("inference/test_inference_gpu.py", "learner/test_learner_gpu.py")]
    return [Command([*pytest, *paths, *files])]


def part(kind: str, num_simulations: int = 0) -> Callable[[Site, Chosen, float], list[Command]]:
    return lambda site, chosen, limit_s: [Command(site.part(kind, num_simulations, chosen.settings), chosen.env)]


#: by worth
STEPS = (
    Step("install", 5, 60, install),
    Step("devices", 5, 40, devices),
    Step("networks", 20, 200, networks),
    Step("stream", 20, 100, part("network")),
    Step("selfplay-200", 30, 100, part("selfplay", 200)),
    Step("selfplay-32", 30, 100, part("selfplay", 32)),
    Step("learner", 20, 70, learner),
    Step("up", 60, 130, up),
    Step("pgx", 40, 90, peers),
    Step("strength", 90, 260, strength),
    Step("tests", 40, 180, tests),
)
PICK = """
import json, sys, torch
from azq.nets.device import pick_device
from azq.process.start import run_main
def pick():
    device = pick_device("DEVICE", "--device")
    print(json.dumps({"device": str(device), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}))
    return 0
sys.exit(run_main("device", pick))
"""
FIRST = ("install", "devices")  # without which no other step is of use


def is_installed(site: Site) -> bool:
    stamp = site.venv / "wheels.sha256"
    return stamp.is_file() and stamp.read_text() == wheels_hash(site.wheels)


def wheels_hash(folder: Path) -> str:
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sorted(folder.glob("*.whl")))).hexdigest()


def link_packages(venv: Path) -> None:
    """Puts this Python's packages behind those of the environment."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        raise SystemExit(f"{sys.executable} has no torch; run this with the Python that has it")
    own = {str(Path(torch.origin).parents[1]), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    site = next(venv.glob("lib/python3*/site-packages"))
    (site / "machine.pth").write_text("\n".join(sorted(own)) + "\n")


def todo(names: Sequence[str], entries: Mapping[str, Mapping[str, Any]]) -> list[Step]:
    """Steps that have no figures yet, then those that failed; before them what every step needs. Pure."""
    open_ones = [step for step in STEPS if step.name in names or (not names and entries.get(step.name, {}).get("state") != "done")]
    rest = sorted((step for step in open_ones if step.name not in FIRST), key=lambda step: step.name in entries)
    return [*(step for step in STEPS if step.name in FIRST), *rest]


def take(step: Step, site: Site, chosen: Chosen, limit_s: float) -> dict[str, Any]:
    """The entry of a step in results.json; what it printed goes to log.txt."""
    began_s, code, figures, said = time.monotonic(), 0, list[dict[str, Any]](), "without a word"
    for command in step.commands(site, chosen, limit_s):
        ended, text = run(command, site, min(began_s + limit_s, time.monotonic() + (command.alone or limit_s)))
        code = code or ended
        with (site.out / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"== {step.name}: {' '.join(command.words)[:300]}\n{text[-MOST_LOG_BYTES:]}\n")
        lines = [line for line in text.splitlines() if line.strip()]
        figures = (figures + [found for line in lines if (found := figures_of(line))])[-MOST_FIGURES:]
        said = next((line for line in reversed(lines) if not figures_of(line)), said)
        if ended and not command.alone:
            break
    state = "done" if code == 0 else "cut" if code == OUT_OF_TIME else "failed"
    said = said.partition("reason=")[2].partition(" role=")[0].strip("'\"") or said  # of a line of azq's log
    remedy = next((f"; {words}" for part, words in REMEDIES.items() if part in said.lower()), "") if code else ""
    return {"state": state, "code": code, "seconds": round(time.monotonic() - began_s, 1), "said": said[:400] + remedy, "figures": figures}


def run(command: Command, site: Site, end_s: float) -> tuple[int, str]:
    """Exit code and output; at the end of its time it is interrupted, so that it writes what it has, then killed."""
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **command.env}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command.words, cwd=site.scratch, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        code = OUT_OF_TIME
        for until_s, ending in ((end_s, signal.SIGINT), (end_s + GRACE_S, signal.SIGKILL)):
            try:
                ended = process.wait(max(0.1, until_s - time.monotonic()))
                code = ended if ending == signal.SIGINT else OUT_OF_TIME
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, ending)
        process.wait()
        output.seek(0)
        return code, output.read().decode("utf-8", "replace")


def figures_of(line: str) -> dict[str, Any] | None:
    """A line's JSON object, where it is one."""
    try:
        found = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def events_of(site: Site) -> dict[str, int]:
    """How often the logs of `azq up` name what is to be known; they go to log.txt."""
    texts = [path.read_text("utf-8", "replace")[-MOST_LOG_BYTES:] for path in sorted(site.scratch.glob("home/*/logs/*.log"))]
    with (site.out / "log.txt").open("a", encoding="utf-8") as log:
        log.writelines(texts)
    return {name: sum(text.count(name) for text in texts) for name in EVENTS}


def save(results: Mapping[str, Any], site: Site) -> None:
    """Whole at any moment; beside the environment too, since OUT may be emptied between two calls."""
    for folder in (site.out, site.venv):
        if folder.is_dir():
            draft = folder / "results.draft"
            draft.write_text(json.dumps(results, indent=1) + "\n")
            draft.replace(folder / "results.json")


def known(site: Site) -> dict[str, Any]:
    """What earlier calls left, of the same wheels where it is the environment's."""
    for path in (site.out / "results.json", *([site.venv / "results.json"] if is_installed(site) else [])):
        if path.is_file():
            found: dict[str, Any] = json.loads(path.read_text())
            return found
    return {"steps": {}}


def work(site: Site, names: Sequence[str], left_s: float) -> int:
    """The steps in order; the exit code."""
    end_s, results = time.monotonic() + left_s, known(site)
    entries, codes = results["steps"], list[int]()
    results["machine"] = machine_facts()
    results["problems"] = problems(results["machine"])
    for problem in results["problems"]:
        print(f"problem: {problem}", flush=True)
    for step in todo(names, entries):
        limit_s = min(step.most_s, end_s - GRACE_S - time.monotonic())
        if limit_s < step.least_s:
            print(f"{step.name}: not begun, {limit_s:.0f} s are left and it takes {step.least_s:.0f}; the same command goes on with it")
            codes.append(OUT_OF_TIME)
            continue
        entry = take(step, site, Chosen.of(entries.get("networks", {}).get("figures", ())), limit_s)
        if step.name == "install" and not entry["code"]:
            (site.venv / "wheels.sha256").write_text(wheels_hash(site.wheels))
        if step.name == "up":
            entry["events"] = events_of(site)
        if entry["figures"] or step.name not in entries:  # what was measured stays, whatever a later try does
            entries[step.name] = entry
        save(results, site)
        codes.append(entry["code"])
        print(f"{step.name}: {entry['state']} with code {entry['code']} after {entry['seconds']:.0f} s: {entry['said'][:200]}", flush=True)
        if entry["code"] and step.name in FIRST:
            break
    return next((code for code in codes if code), 0)


def main() -> int:
    """Reads the arguments."""
    if sys.argv[1:2] == ["--link"]:
        link_packages(Path(sys.argv[2]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(step.name for step in STEPS))
    parser.add_argument("--left", type=float, default=float(os.environ.get("LEFT", "540")), help="seconds for everything")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "azq-bench-venv")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if unknown := set(given.steps) - {step.name for step in STEPS}:
        parser.error(f"no step is called {unknown.pop()}")
    given.out.mkdir(parents=True, exist_ok=True)
    size = SMALL if given.small else Size()
    with tempfile.TemporaryDirectory(prefix="azq-first-", ignore_cleanup_errors=True) as scratch:
        site = Site(given.wheels.resolve(), given.out.resolve(), Path(scratch), given.venv.absolute(), given.device, size)
        return work(site, given.steps, given.left)


if __name__ == "__main__":
    sys.exit(main())
