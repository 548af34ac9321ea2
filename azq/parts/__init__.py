"""Parts around the kernel: azq starts, trains and recovers without any of them.

    lab          measures this machine, rehearses failures, proves that learning repeats, searches settings
    cluster      many machines from one file: checks, cost, rendered targets, ssh
    volunteers   browsers' tabs that make games: gateway, tickets, verification

Nothing outside a part imports it (import-linter). A part adds to azq by modules that `extensions` finds by name: `commands` has
`COMMANDS`, the command line's entries.
"""

import importlib
import importlib.util
from collections.abc import Iterator
from types import ModuleType

NAMES = ("lab", "cluster", "volunteers")


def extensions(kind: str) -> Iterator[ModuleType]:
    """The module `azq.parts.PART.<kind>` of every part that is installed and has one."""
    for name in (f"azq.parts.{part}" for part in NAMES):
        if importlib.util.find_spec(name) and importlib.util.find_spec(f"{name}.{kind}"):
            yield importlib.import_module(f"{name}.{kind}")
