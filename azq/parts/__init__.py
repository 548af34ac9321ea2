"""Parts around the kernel: azq starts, trains and recovers without any of them.

    lab          measures this machine, rehearses failures, proves that learning repeats, searches settings
    cluster      many machines from one file: checks, cost, rendered targets, ssh
    volunteers   browsers' tabs that make games: gateway, tickets, verification
    sim          the protocol in one process under faults, from a seed: simulated clock, broker, delivery, disk
    ranks        training by several processes: membership, gradient exchange, compression

Nothing outside a part imports it (import-linter). A part adds to azq by modules that `extensions` finds by name: `commands` has
`COMMANDS`, the command line's entries; `routes` has `make_router(config, client)`, of the REST interface; `learner` has `main`, the
learner's process where a run trains with several.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def installed(part: str) -> bool:
    """Whether this azq has a part."""
    return (HERE / part / "__init__.py").is_file()


def extensions(kind: str) -> Iterator[ModuleType]:
    """The module `azq.parts.PART.<kind>` of every part that is installed and has one; no other module of a part is loaded for it."""
    for path in sorted(HERE.glob(f"*/{kind}.py")):
        yield import_module(f"{__name__}.{path.parent.name}.{kind}")
