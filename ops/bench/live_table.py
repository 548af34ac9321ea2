"""Exports the live table of a running `azq up` as SVG, for the README.

Usage: live_table.py RUN OUT.svg [HOME]
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import Console

from azq.config import load
from azq.console.table import panel
from azq.host import brokers
from azq.status.observe import Watch
from azq.wire.connect import connect


def main() -> None:
    """Reads the control plane once and draws what a terminal of 118 columns shows."""
    run, out = sys.argv[1:3]
    config = brokers.resolve(load(overrides=[f'home="{sys.argv[3]}"'] if len(sys.argv) > 3 else []))
    status = Watch(connect(config.broker.control_url)).summary(run)
    console = Console(record=True, width=118, file=io.StringIO())
    console.print(panel(status))
    svg = console.export_svg(title=f"azq up --until minutes={status.until.get('minutes', 0):g}")
    # Fonts from afar would be fetched by whoever looks at the page; any monospaced one will do.
    Path(out).write_text(re.sub(r"@font-face\s*{[^}]*}|<!--.*?-->", "", svg, flags=re.DOTALL), "utf-8")


if __name__ == "__main__":
    main()
