"""Prints what pyproject.toml asks for, one requirement a line: the project's own needs, the named extras, the `dev` group.

Usage: requirements.py [extra ...]
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def requirements(extras: list[str]) -> list[str]:
    """Direct requirements in the order of the file."""
    data = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))
    project = data["project"]
    optional = [line for extra in extras for line in project["optional-dependencies"][extra]]
    return [*project["dependencies"], *optional, *data["dependency-groups"]["dev"]]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
