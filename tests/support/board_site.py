"""The pages of `azq demo` as plain files on this machine, with networks that only have a name: for what is seen before anybody thinks."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from azq import pretrained
from azq.console import demo
from azq.games import GameFiles

LEVEL = {"elo": 0.0, "weight_version": 1, "num_simulations": 8, "temperature": 0.0, "measured": False}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def board_site(folder: Path) -> Iterator[str]:
    """Serves the site from the folder; yields its address."""
    demo.write_pages(folder)
    for game in pretrained.names():
        params = pretrained.card(game).params
        about = {
            "game": game,
            "params": params,
            "search": {},
            "levels": [LEVEL] * 10,
            "networks": [{"version": 1, "sha256": "", "size": 1}],
        }
        (folder / demo.NETWORKS / f"{game}.json").write_text(json.dumps(about))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def moves_of(game: str, enough: Callable[[int, Any], bool]) -> str:
    """The moves of an address: always a seventh legal action on, until a position that is `enough` (plies, state); an end is one."""
    state = GameFiles().load(game, pretrained.card(game).params).new_initial_state()
    actions: list[int] = []
    while not state.is_terminal() and not enough(len(actions), state):
        legal = state.legal_actions()
        actions.append(legal[7 * len(actions) % len(legal)])
        state.apply_action(actions[-1])
    return ".".join(base36(action) for action in actions)


def base36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits
