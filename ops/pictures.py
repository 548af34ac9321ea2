"""README's pictures, from one seeded run of connect four on this machine: its live table as a moving SVG, with a self-play worker
killed on the way, and its page as a PNG; and the boards that link previews of `azq site build` show.

Usage: pictures.py [--minutes 10] [--out docs/img]    `make pictures`; needs playwright and chromium.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console

from azq import pretrained
from azq.console.table import panel
from azq.host.fronts import free_port
from azq.local import Local
from azq.status.summary import RunStatus

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from board_site import board_site  # noqa: E402
from browsing import launched  # noqa: E402

COLUMNS = 118
SHOWN_S = (3, 10, 20, 40, 60, 120, 180, 240)  # of the run, before its worker dies
KILLED_AT = 0.6  # of the run
AFTER_KILL_S = (0, 1, 2, 4, 8, 30)
FRAME_S = 1.5
FONT_FACES = re.compile(r"@font-face\s*\{.*?\}", re.DOTALL)
Frame = tuple[RunStatus, str]  # the live table at a moment, and what has just happened


def record(local: Local, minutes: float) -> list[Frame]:
    """Frames of a run's first minutes, in which it loses its self-play worker."""
    killed_s, frames, note = KILLED_AT * 60 * minutes, [], ""
    moments = [second for second in SHOWN_S if second < killed_s] + [killed_s + second for second in AFTER_KILL_S] + [60 * minutes]
    for status in local.statuses():
        if not note and status.active_s >= killed_s:
            local.kill("selfplay")
            note = "kill -9 of the self-play worker: the next one adopts its games"
        if status.active_s >= moments[0]:
            frames.append((status, note))
            moments = [second for second in moments if second > status.active_s]
        if not moments:
            break
    return frames


def film(frames: Sequence[Frame]) -> str:
    """One SVG that shows the frames in turn; the last one alone to those who want no motion."""
    drawn = [_drawn(frame, f"f{number}") for number, frame in enumerate(frames)]
    sizes = [tuple(map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])) for svg in drawn]
    width, height = map(max, zip(*sizes, strict=True))
    share, length_s = 100 / len(drawn), FRAME_S * len(drawn)
    groups = [f'<g class="frame" style="animation-delay:{number * FRAME_S}s">{svg}</g>' for number, svg in enumerate(drawn)]
    return f"""<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg"><style>
.frame {{ visibility: hidden; animation: film {length_s}s steps(1) infinite; }}
@keyframes film {{ 0% {{ visibility: visible }} {share:.3f}% {{ visibility: hidden }} }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none }} .frame:last-child {{ visibility: visible }} }}
</style>{"".join(groups)}</svg>
"""


def _drawn(frame: Frame, name: str) -> str:
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(panel(*frame))
    return FONT_FACES.sub("", console.export_svg(title="azq up --game connect_four", unique_id=name))


def photograph(door: str, address: str, file: Path) -> None:
    """A page behind its sign-in, once its figures are drawn."""
    with launched() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto(door)
        page.goto(address)
        page.wait_for_timeout(5_000)  # two answers of every figure
        page.screenshot(path=str(file))


ALONE = """scene => {
  const { width, height } = scene.getBoundingClientRect(), scale = Math.min(1100 / width, 570 / height);
  scene.style.cssText = `position: fixed; left: 50%; top: 50%; width: ${width}px; translate: -50% -50%; scale: ${scale}; z-index: 9;
    background: #f3f1ec; box-shadow: 0 0 0 1200px #f3f1ec`;
}"""


def photograph_boards(folder: Path) -> None:
    """The gallery's board of each game, as link previews show it."""
    with tempfile.TemporaryDirectory() as site, board_site(Path(site) / "site") as url, launched() as browser:
        for game in pretrained.names():
            page = browser.new_page(viewport={"width": 1200, "height": 630}, color_scheme="light")
            page.goto(url)
            page.locator(f'section[data-game="{game}"] .scene').evaluate(ALONE)
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(64)
            picture.save(folder / f"{game}.png", optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "img")
    arguments = parser.parse_args()
    photograph_boards(ROOT / "azq" / "web" / "gallery")
    port = free_port()
    with Local("connect_four", settings=[f"daemon.port={port}", "run.seed=1"]) as local:
        frames = record(local, arguments.minutes)
        (arguments.out / "live-table.svg").write_text(film(frames), "utf-8")
        token = (local.folder / ".token").read_text("utf-8").strip()
        photograph(f"http://127.0.0.1:{port}/#token={token}", f"http://127.0.0.1:{port}/#/run/{local.run}", arguments.out / "dashboard.png")


if __name__ == "__main__":
    main()
