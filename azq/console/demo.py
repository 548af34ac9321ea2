"""The shipped networks as pages that need no run: a folder for any web server, and the same folder served here."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import importlib
import random
import re
import shutil
import socket
import tempfile
import threading
import webbrowser
from dataclasses import replace
from functools import cache, partial
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from azq import pretrained
from azq.arena.levels import Level, ladder, playable
from azq.config import RunSections, merge, parse_run
from azq.errors import StateConflict
from azq.games import GameFiles
from azq.presets import preset
from azq.ratings.elo import Rating
from azq.wire.messages import ModelEvent

WEB = Path(str(files("azq") / "web"))
PAGES = ("play", "gallery", "boards", "plug", "vendor")  # folders of it; the others are pages of a daemon or a gateway
GAMES, NETWORKS = "games.json", "site"
SHOWN_PLIES = 30  # of random play, on the gallery's boards
LEAST_SHARE = 0.5  # of the points, in a match that says how strong a network is
STRENGTH, STRONGEST = 64, 2048  # simulations of a network at its own level, and of the highest level


def build(folder: Path, url: str = "") -> list[str]:
    """Writes the whole site into a new or empty folder; returns the games. Raises `StateConflict` where there are other files.

    Link previews of its pages have pictures where `url`, its address, is given.
    """
    from azq.process.site import PACKED

    packers = {".gz": partial(gzip.compress, mtime=0)}
    with contextlib.suppress(ImportError):  # where it is installed
        packers[".br"] = importlib.import_module("brotli").compress
    for path in list(write_pages(folder, url).rglob("*")):
        for suffix, packed in packers.items() if path.suffix in PACKED else ():  # beside it, for servers that send it so
            path.with_name(path.name + suffix).write_bytes(packed(path.read_bytes()))
    for game in pretrained.names():
        _write_network(folder, game)
    return list(pretrained.names())


def demo(port: int, *, open_browser: bool) -> None:
    """Serves the site on this machine until Ctrl-C; a game's network is made when it is first asked for."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import FileResponse
    from starlette.routing import Mount, Route

    from azq.process.site import Guarded, WebFiles
    from azq.process.webserver import bind, url_of

    with tempfile.TemporaryDirectory(prefix="azq-demo-") as name, bind("127.0.0.1", port, "--port", socket.socket) as listener:
        folder = Path(name)
        write_pages(folder / "pages")
        made, lock = cache(partial(_write_network, folder / "pages")), threading.Lock()

        def network(game: str) -> Path:
            with lock:
                return made(game)

        async def playable(request: Request) -> FileResponse:
            if (game := request.path_params["game"]) not in pretrained.names():
                raise HTTPException(404)
            return FileResponse(await run_in_threadpool(network, game))

        routes = [Route(f"/{NETWORKS}/{{game}}.json", playable), Mount("/", WebFiles(folder / "pages"))]
        app = Guarded(Starlette(routes=routes))
        listener.listen()  # a browser that is quicker than the server waits
        url = url_of(listener)
        print(f"azq: play the shipped networks at {url} (Ctrl-C ends it)", flush=True)  # noqa: T201
        if open_browser:
            webbrowser.open(url)
        threading.Thread(target=importlib.import_module, args=("azq.nets.whole",), daemon=True).start()  # loads torch meanwhile
        with contextlib.suppress(asyncio.CancelledError):  # a Ctrl-C that comes before uvicorn handles signals
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def write_pages(folder: Path, url: str = "") -> Path:
    """Writes everything but the networks; returns the folder, named by its content, of what pages load."""
    from azq.process.site import Assets

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StateConflict(f"{folder} is not empty; name a new folder")
    web = folder / "assets" / "web"
    others = {path.name for path in WEB.iterdir() if path.is_dir()} - {*PAGES}
    shutil.copytree(WEB, web, ignore=lambda _, names: others.intersection(names))
    assets = Assets({"web": web})
    name = assets.name()
    _write_page(folder, assets.page("web/gallery", ""), "Play nine games", f"{url}{name}/web/gallery/connect_four.png" if url else "")
    page = assets.page("web/play", "../../")
    for game in pretrained.names():
        title, image = game.replace("_", " ").capitalize(), f"{url}{name}/web/gallery/{game}.png"
        _write_page(folder / "play" / game, page, f"Play {title} against a network", image if url else "", game)
    (folder / NETWORKS).mkdir()
    (folder / GAMES).write_bytes(msgspec.json.encode([_entry(game) for game in pretrained.names()]))
    return web.parent.rename(folder / name) / "web"


def _write_page(folder: Path, text: str, title: str, image: str, game: str = "") -> None:
    """A page, of one game or of all; link previews say what it is."""
    tags = {"og:title": title, "og:site_name": "azq", "og:image": image}
    previews = "".join(f'<meta property="{name}" content="{escape(text)}">\n' for name, text in tags.items() if text)
    preload = f'<link rel="preload" href="{"../../" if game else ""}{GAMES}" as="fetch" crossorigin>\n</head>'
    text = re.sub("<title>.*</title>", f"<title>{escape(title)} · azq</title>\n{previews}", text).replace("</head>", preload)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(text.replace('<html lang="en">', f'<html lang="en" data-game="{game}">') if game else text, "utf-8")


def _entry(name: str) -> dict[str, Any]:
    """What the gallery shows of a game."""
    card, rng = pretrained.card(name), random.Random(0)
    state = GameFiles().load(name, card.params).new_initial_state()
    start = str(state)
    for _ in range(SHOWN_PLIES):
        after = state.clone()
        after.apply_action(rng.choice(after.legal_actions()))
        if after.is_terminal():
            break
        state = after
    won = [match for match in card.matches if match.share >= LEAST_SHARE]
    return {
        "game": name,
        "params": card.params,
        "start": start,
        "position": str(state),
        "measured": won[-1] if won else None,
        "levels": card.levels,
    }


def _write_network(folder: Path, name: str) -> Path:
    """A game's network as browsers take it, and beside it what the play page has to know; returns the latter."""
    from azq.nets import restore
    from azq.nets.whole import for_tabs

    card = pretrained.card(name)
    data = for_tabs(restore(pretrained.verified(name).read_bytes(), GameFiles().load(name, card.params)))
    model = ModelEvent(card.version, hashlib.sha256(data).hexdigest(), "", len(data), b"", b"", b"", 0.0)
    (folder / NETWORKS / f"{model.sha256}.onnx").write_bytes(data)
    path = folder / NETWORKS / f"{name}.json"
    path.write_bytes(msgspec.json.encode(replace(playable(name, sections_of(card), [model], ()), levels=levels_of(card))))
    return path


def sections_of(card: pretrained.Card) -> RunSections:
    """The settings that a game's network plays with."""
    return parse_run(
        merge(preset(card.game), {"run": {"game": card.game, "params": card.params}, "search": card.search}), f"azq:{card.game}"
    )


def levels_of(card: pretrained.Card) -> list[Level]:
    """The levels of a game's network, weakest first; their Elo is an estimate around its strength at `STRENGTH`."""
    return ladder([Rating(f"weights:{card.version}", 0.0, 0.0, 0.0, 0, 0.0)], STRENGTH, STRONGEST)
