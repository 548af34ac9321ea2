"""What commands over REST do on this machine: find the daemon, write weights, delete a run with its folder."""

from __future__ import annotations

import hashlib
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from azq import pretrained
from azq.arena.levels import best_version
from azq.client import Client
from azq.config import Config, ListenConfig
from azq.config.access import is_loopback, with_own_token
from azq.errors import ConfigError, NotFound, StoreError
from azq.files import write_output
from azq.host.game_files import load_game
from azq.notation.units import score_text
from azq.pretrained import Card, MeasuredGrade, MeasuredMatch
from azq.status.schemas import AuditOut, WeightsOut
from azq.status.strength import MILLI

FORMATS = ("onnx", "safetensors")


def client_of(config: Config, url: str = "") -> Client:
    """A client of the daemon at `url`, or of the one that these settings describe, with their token, else the one that it made for itself.

    The latter is for the daemon of this home and so is sent to this machine alone.
    """
    here = not url or is_loopback(urlsplit(url).hostname or "")
    daemon = with_own_token(config).daemon if here else config.daemon
    return Client(url or url_of(daemon), daemon.token.get_secret_value(), trust=None if url else _trust(daemon))


def url_of(config: ListenConfig) -> str:
    """Where a daemon or a gateway with these settings answers on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.host, config.host)
    return f"{'https' if config.tls_certificate else 'http'}://{f'[{host}]' if ':' in host else host}:{config.port}"


def export_weights(config: Config, client: Client, run: str, version: str, as_format: str, out: Path | None) -> dict[str, Any]:
    """Writes published weights in one of `FORMATS`; what was written, and where.

    Raises `ConfigError` for another format or version, `NotFound` for weights that are not there or not rated, `StoreError`.
    """
    if as_format not in FORMATS:
        raise ConfigError(f"--format {as_format} is none of {', '.join(FORMATS)}")
    number = _newest(client, run) if version == "latest" else best_weights(client, run) if version == "best" else version
    data = client.read_weights(run, number)
    if as_format == "onnx":
        from azq.nets import from_bytes, restore
        from azq.nets.onnx import to_onnx

        meta = from_bytes(data)[1]
        data = to_onnx(restore(data, load_game(config, meta.game, meta.params, f"version {number} of {run}")))
    path = out or Path(f"{run}-{number}.{as_format}")
    write_output(path, data)
    return {"file": str(path), "version": int(number), "format": as_format, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _newest(client: Client, run: str) -> int:
    result = client.weights(run, limit=1)
    if not result:
        raise NotFound(f"run {run} has published no weights yet")
    return result[0].version


def best_weights(client: Client, run: str) -> int:
    """The highest rated version. Raises `NotFound` where none is."""
    best = best_version(client.arena(run, limit=1).ratings)
    if best is None:
        raise NotFound(f"no weights of run {run} are rated yet; ask for `latest`, or wait for its first matches")
    return best


def _trust(config: ListenConfig) -> ssl.SSLContext | None:
    """The daemon's own certificate is trusted where these settings name it, be it signed by itself."""
    if config.tls_certificate is None:
        return None
    try:
        return ssl.create_default_context(cafile=str(config.tls_certificate))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"daemon.tls_certificate {config.tls_certificate} cannot be read ({error}); mend it, or give --url") from None


AUDIT_LINES = 100  # the newest


def audit_text(line: AuditOut) -> str:
    """One line for people."""
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at_ms / 1000))
    answered = f" -> {line.status}" if line.status else ""
    return f"{when}  {line.who:<24}{line.address:<16}{line.what}{answered}" + (f"  {line.about}" if line.about else "")


def delete_run(client: Client, name: str, files: bool, confirm: Callable[[str], bool]) -> dict[str, Any]:
    """Whether it was deleted, and its files.

    Raises `NotFound`, `StateConflict` while it works, and `ConfigError` where its files are asked for and not here.
    """
    run = client.run(name)
    folder = Path(run.directory)
    if files:
        check_run_folder(folder)
    result = {"run": name, "deleted": False, "folder": run.directory, "files": False}
    if not confirm(f"forget run {name} ({run.game}, {run.state}): its ledger, jobs, results and history?"):
        return result
    if files and not confirm(f"and remove {folder} with its games, checkpoints and weights, which nothing brings back?"):
        return result
    client.delete_run(name)
    if files:
        _remove(folder)
    return {**result, "deleted": True, "files": files}


def check_run_folder(folder: Path) -> None:
    """Raises `ConfigError` for what is no folder of a run on this host."""
    if folder.is_symlink() or not folder.is_absolute() or not (folder / "segments").is_dir():
        raise ConfigError(f"{folder} is no folder of a run on this host; give --files on the host that has it, or remove it by hand")


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise StoreError(f"the run is forgotten, and {folder} cannot be removed ({error.strerror or error}); remove it by hand") from None


def weights_row(weights: WeightsOut) -> tuple[str, ...]:
    """Published weights as a row; those that serve begin with an asterisk."""
    size, elo, share = f"{weights.blocks}x{weights.channels}", "", ""
    if weights.elo is not None:
        elo = f"Elo {weights.elo:+.0f} ({weights.elo_low:+.0f} to {weights.elo_high:+.0f}), {weights.rated_games} games"
    if weights.score is not None:
        elo = f"score {weights.score:,.0f} ({weights.score_low:,.0f} to {weights.score_high:,.0f}), {weights.scored_games} games"
    if weights.errors is not None:
        share = f"errors {weights.errors / weights.graded_positions:.1%} of {weights.graded_positions}"
    if weights.loss is not None:
        share = f"{MILLI * weights.loss:.1f} millipoints of {weights.graded_positions}"
    serves = f"served by {weights.served_by}" if weights.served_by else ""
    became = "pinned" if weights.pinned else weights.state.replace("_", " ")
    played = ", ".join(f"{games} with {opponent}" for opponent, games in sorted(weights.opponents.items()))
    begin = ("*" if weights.serves else "", str(weights.version), f"step {weights.step:,}", size, f"{weights.size:,} bytes")
    return (*begin, elo, share, serves, became, weights.sha256[:12], played)


def pretrained_text(cards: list[Card]) -> list[str]:
    """A line for each, what was measured below it. Pure."""
    lines = []
    for card in cards:
        run = card.training
        head = f"{pretrained.PREFIX}{card.game:<13} {card.size / 1000:>5.0f} kB  {card.network}"
        lines.append(f"{head}; {run.minutes:g} minutes, {run.cpu_seconds:,} CPU-seconds, {run.games:,} games")
        lines += [f"{'':<17} {_graded_card(grade)}" for grade in card.grades]
        lines += [f"{'':<17} {_played_card(match)}" for match in card.matches]
    return lines


def _graded_card(grade: MeasuredGrade) -> str:
    certain = f", a result class lost in {grade.error_share:.1%}" if grade.error_share is not None else ""
    return f"mean loss {grade.mean_loss:g} {grade.unit} on {grade.positions} positions at {grade.num_simulations} simulations{certain}"


def _played_card(match: MeasuredMatch) -> str:
    if match.gap is not None and match.gap_95 is not None:
        ours, more = score_text(match.points, match.points_95), score_text(match.gap, match.gap_95, sign="+")
        played = f"at {match.num_simulations} simulations, {more} over {match.opponent} in {match.games} games of the same luck"
        return f"{ours} {match.unit} a game {played}"
    against = f"{match.seats - 1} x {match.opponent}" if match.seats > 2 else match.opponent
    elo = f", Elo {match.elo:+d} ({match.elo_low:+d} .. {match.elo_high:+d})" if match.elo is not None else ""
    points = f", {match.points:+.2f} +-{match.points_95:.2f} {match.unit} a game" if match.unit != "result" else ""
    return f"{match.share:.1%} of {match.games} games against {against} at {match.num_simulations} simulations{elo}{points}"
