"""Are the tests sharp? Small wrong changes are made to the modules that decide, and their unit tests have to notice.

Usage: mutants.py [MODULE ...] [--sample N --seed S] [--jobs J]

The changes are Cosmic Ray's: comparisons, constants, signs, branches; in Lua those of `LUA_CHANGES`. None is written to disk: each runs in
a process of its own, forked with the libraries loaded, that reads one module from its changed text. `mutants.toml` beside this file names
the modules, their tests, and every change that goes unnoticed, with the reason. Ends with 1 where a change went unnoticed that is not
named there, where one is named that is noticed by now or is none any more, or where a module's score falls below 90 %.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import ndiff
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_suffix(".toml")
SCORE = 0.90
OPERATORS = (
    *(f"ReplaceComparisonOperator_{change}" for change in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceComparisonOperator_{change}" for change in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Lt_GtE", "LtE_Gt", "Gt_LtE", "GtE_Lt")),
    *(f"ReplaceBinaryOperator_{change}" for change in ("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul", "Div_Mul", "Mod_FloorDiv")),
    *(f"ReplaceBinaryOperator_{change}" for change in ("Pow_Mul", "LShift_RShift", "RShift_LShift", "BitOr_BitAnd", "BitAnd_BitOr")),
    *("ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not", "AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer"),
    "ZeroIterationForLoop",
)
#: binary operators and words of Lua, and what takes their place; numbers grow by one
LUA_CHANGES = {"==": "~=", "~=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", " + ": " - ", " - ": " + "}
LUA_CHANGES |= {"and": "or", "or": "and", "not": "", "true": "false", "false": "true", "'LPUSH'": "'RPUSH'", "'RPUSH'": "'LPUSH'"}
LUA_TOKEN = re.compile(r"--[^\n]*|'[^'\n]*'|[<>=~]=|[<>]| [+-] |\w+")
PLUGINS = ("hypothesis.extra.pytestplugin", "pytest_timeout")
LIBRARIES = ("msgspec", "numpy", "pydantic_settings", "pytest", "redis", "structlog", "celery", "fsspec", "hypothesis", "torch")


@dataclass(frozen=True, slots=True)
class Decider:
    """A module that decides, and the tests that are to notice what is wrong with it."""

    path: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").replace("/", ".")

    @property
    def is_lua(self) -> bool:
        return self.path.endswith(".lua")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One module with one small change."""

    module: Decider
    line: int
    before: str  # the changed lines
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.module.path}:{self.line}: {self.before}  ->  {self.after}"


@dataclass(frozen=True, slots=True)
class Survivor:
    """A change that nothing notices, and why that is so. An equal program does the same as before: no test could notice."""

    module: str
    before: str
    after: str
    reason: str
    equal: bool = False

    def names(self, mutant: Mutant) -> bool:
        """Whether it is this one."""
        return (self.module, self.before, self.after) == (mutant.module.path, mutant.before, mutant.after)


def mutants(module: Decider, source: str) -> Iterator[Mutant]:
    """Every changed text, once."""
    for text in dict.fromkeys(lua_changes(source) if module.is_lua else python_changes(source)):
        yield Mutant(module, *_difference(source, text), text)


def lua_changes(source: str) -> Iterator[str]:
    """Every text in which one token outside of comments is another."""
    for token in LUA_TOKEN.finditer(source):
        changed = str(int(token[0]) + 1) if token[0].isdecimal() else LUA_CHANGES.get(token[0])
        if changed is not None:
            yield source[: token.start()] + changed + source[token.end() :]


def python_changes(source: str) -> Iterator[str]:
    """Every text in which one of `OPERATORS` was at work. The file is parsed once, and each changes a copy of the smallest part."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    starts = list(accumulate(map(len, source.splitlines(keepends=True)), initial=0))
    nodes = list(ast_nodes(get_ast(source)))
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        for node in nodes:
            for index, _ in enumerate(operator.mutation_positions(node)):
                line, column = node.get_start_pos_of_prefix()
                start, length = starts[line - 1] + column, len(node.get_code())
                changed = operator.mutate(deepcopy(node, {id(node.parent): node.parent}), index)
                yield source[:start] + changed.get_code() + source[start + length :]


def programs(changed: Iterable[Mutant], sources: dict[Decider, str]) -> Iterator[Mutant]:
    """Those that are another program; annotations, which nothing reads, do not make one."""
    seen = {module: {_meaning(module, source)} for module, source in sources.items()}
    for mutant in changed:
        if (meaning := _meaning(mutant.module, mutant.text)) not in (before := seen[mutant.module]):
            before.add(meaning)
            yield mutant


def _meaning(module: Decider, source: str) -> str:
    """The program without annotations and the decorators of classes, which only keep people from mistakes; "" where it is none."""
    if module.is_lua:
        return source
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return ""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg):
            node.annotation = ast.Constant(None)
        elif isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.ClassDef):
            node.decorator_list = []
    return ast.dump(tree)


def _difference(source: str, text: str) -> tuple[int, str, str]:
    """Number of the first changed line, the changed lines as they were, and as they are."""
    before, after = source.splitlines(), text.splitlines()
    first = next(number for number, (old, new) in enumerate(zip(before, after, strict=False), start=1) if old != new)
    changes = [line for line in ndiff(before, after) if line[:2] in ("- ", "+ ")]
    said = [" ".join(line[2:].strip() for line in changes if line.startswith(sign)) for sign in "-+"]
    return first, said[0], said[1]


def drawn(seed: int, mutant: Mutant) -> bytes:
    """Its place in a sample: by what it is, so that a module which changes leaves those of the others where they were."""
    return hashlib.blake2b(f"{seed} {mutant.module.path} {mutant.before} {mutant.after}".encode()).digest()


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):  # type: ignore[misc]
    """Imports one module from a text; before all other finders."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Only of that one module."""
        if name != self._mutant.module.name:
            return None
        return importlib.util.spec_from_file_location(name, ROOT / self._mutant.module.path, loader=self)

    def get_filename(self, fullname: str) -> str:
        """Where tracebacks look."""
        return str(ROOT / self._mutant.module.path)

    def get_data(self, path: str | bytes) -> bytes:
        """The changed text."""
        return self._mutant.text.encode()


def run_tests(tests: Sequence[str], mutant: Mutant | None) -> int:
    """Forks a process that runs the tests, silent; its pid. It exits with pytest's code."""
    if pid := os.fork():
        return pid
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    if mutant is not None and mutant.module.is_lua:
        from azq.ledger import scripts

        scripts.BODIES[Path(mutant.module.path).stem] = mutant.text
    elif mutant is not None:
        sys.meta_path.insert(0, ChangedModule(mutant))
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins take longer to load than most of these tests to run
    from hypothesis import Phase, settings

    # Nothing remembered of the change before, no judging by the clock, and no time for finding the simplest example.
    settings.register_profile("mutants", database=None, deadline=None, phases=(Phase.explicit, Phase.generate))
    plugins = [part for plugin in PLUGINS for part in ("-p", plugin)]
    place = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT)]
    chosen = ["--hypothesis-profile=mutants", "--hypothesis-seed=0", *place, *(str(ROOT / test) for test in tests)]
    os._exit(int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *plugins, *chosen])))


def run_each(
    todo: Sequence[tuple[Decider, Mutant | None]], limits_s: dict[str, float], jobs: int
) -> Iterator[tuple[Decider, Mutant | None, int, float]]:
    """Runs the tests of each, so many at a time; yields pytest's code and the seconds as they end. Those out of time are killed: -9."""
    waiting, running = list(reversed(todo)), dict[int, tuple[Decider, Mutant | None, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            module, mutant = waiting.pop()
            running[run_tests(module.tests, mutant)] = module, mutant, time.monotonic()
        for pid, (module, mutant, began_s) in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            took_s = time.monotonic() - began_s
            if not ended and took_s < limits_s.get(module.path, float("inf")):
                continue
            if not ended:
                os.killpg(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
            del running[pid]
            yield module, mutant, os.waitstatus_to_exitcode(status), took_s
        time.sleep(0.01)  # between two looks at processes; nothing depends on its length


def judge(todo: Sequence[Mutant], limits_s: dict[str, float], jobs: int) -> list[Mutant]:
    """Runs the tests of each and returns those that went unnoticed. Tests that do not end in time have noticed."""
    unnoticed: list[Mutant] = []
    for done, (module, mutant, code, _) in enumerate(run_each([(mutant.module, mutant) for mutant in todo], limits_s, jobs)):
        if done % 50 == 0:
            print(f"{done:5} of {len(todo)}: {module.path}", flush=True)
        if code == 0 and mutant:
            unnoticed.append(mutant)
            print(f"unnoticed  {mutant}", flush=True)
    return unnoticed


def patience_s(modules: Iterable[Decider], jobs: int) -> dict[str, float]:
    """By module, ten times what its tests take as they are. Ends the program where they fail."""
    limits_s = {}
    for module, _, code, took_s in run_each([(module, None) for module in modules], {}, jobs):
        if code:
            raise SystemExit(f"the tests of {module.path} fail without any change: {' '.join(module.tests)}")
        limits_s[module.path] = 10 + 10 * took_s
    return limits_s


def report(done: Sequence[Mutant], unnoticed: Sequence[Mutant], known: Sequence[Survivor], whole: bool) -> dict[str, object]:
    """What came of it; `passed` says whether that is good enough."""
    named = [(mutant, next((survivor for survivor in known if survivor.names(mutant)), None)) for mutant in unnoticed]
    equal = {id(mutant) for mutant, survivor in named if survivor and survivor.equal}
    scores = {}
    for path in dict.fromkeys(mutant.module.path for mutant in done):
        of = [mutant for mutant in done if mutant.module.path == path and id(mutant) not in equal]
        missed = [mutant for mutant in unnoticed if mutant.module.path == path and id(mutant) not in equal]
        scores[path] = {"mutants": len(of), "noticed": len(of) - len(missed), "score": round(1 - len(missed) / max(1, len(of)), 3)}
    fresh = [str(mutant) for mutant, survivor in named if survivor is None]
    judged = [survivor for survivor in known if (survivor.module in scores if whole else any(map(survivor.names, done)))]
    idle = [survivor for survivor in judged if not any(map(survivor.names, unnoticed))]
    ended = [f"{survivor.module}: {survivor.before}  ->  {survivor.after}" for survivor in idle]
    low = [path for path, score in scores.items() if score["score"] < SCORE] if whole else []
    passed = not fresh and not ended and not low
    return {"modules": scores, "unnamed": fresh, "noticed_by_now": ended, "below": low, "passed": passed}


def main(arguments: Sequence[str]) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="paths of modules; by default all")
    parser.add_argument("--sample", type=int, default=0, help="so many changes of all, by chance")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    wish = parser.parse_args(arguments)
    listed = tomllib.loads(LIST.read_text("utf-8"))
    deciders = [Decider(entry["path"], tuple(entry["tests"])) for entry in listed["module"]]
    known = [Survivor(**entry) for entry in listed.get("survivor", [])]
    chosen = [decider for decider in deciders if not wish.modules or decider.path in wish.modules]
    for library in LIBRARIES:
        importlib.import_module(library)
    sources = {decider: (ROOT / decider.path).read_text("utf-8") for decider in chosen}
    texts = [mutant for decider in chosen for mutant in mutants(decider, sources[decider])]
    if wish.sample:
        texts.sort(key=lambda mutant: drawn(wish.seed, mutant))
    todo = list(islice(programs(texts, sources), wish.sample or None))
    touched = dict.fromkeys(mutant.module for mutant in todo)
    with tempfile.TemporaryDirectory() as elsewhere, contextlib.chdir(elsewhere):  # what a wrong program writes is nobody's
        unnoticed = judge(todo, patience_s(touched, wish.jobs), wish.jobs)
    found = report(todo, unnoticed, known, whole=not wish.sample)
    say(found)
    return 0 if found["passed"] else 1


def say(found: dict[str, Any]) -> None:
    """For people."""
    for path, score in found["modules"].items():
        print(f"{score['score']:6.1%}  {score['noticed']:4} of {score['mutants']:4}  {path}")
    for what, word in (
        ("unnamed", "unnoticed and not named"),
        ("noticed_by_now", "named in mutants.toml, but noticed, or no such change"),
        ("below", f"below {SCORE:.0%}"),
    ):
        for line in found[what]:
            print(f"{word}: {line}")
    total = [sum(score[key] for score in found["modules"].values()) for key in ("noticed", "mutants")]
    print(f"{total[0]} of {total[1]} changes noticed: {'sharp enough' if found['passed'] else 'not sharp enough'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
