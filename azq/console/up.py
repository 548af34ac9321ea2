"""`azq up`: broker, daemon, inference, workers and learner as supervised children of one command, and a table that shows them learn."""

from __future__ import annotations

import dataclasses
import re
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from azq import logs, parts, pretrained
from azq.bus.base import Bus
from azq.clock import now_ms
from azq.config import Config, RunSections, load, merge
from azq.config.access import check_tls, is_loopback
from azq.console.move import weights_file
from azq.console.remote import url_of
from azq.console.session import Session, Start
from azq.errors import ConfigError, MissingExtra, StateConflict
from azq.games import Game
from azq.games.files import absolute
from azq.goals import Done, Goals
from azq.host import rundir
from azq.host.brokers import BROKER_FOLDER, Brokers, home_lock
from azq.host.devices import DevicePlan, Wishes, detect, plan, remember, vanished
from azq.host.fronts import parse_listen
from azq.host.game_files import list_game, load_game, with_game
from azq.host.restore import create_from_folder, holds_games
from azq.host.users import NO_USERS, knows_roles
from azq.ledger import Ledger
from azq.ledger.records import check_run_name, record_of
from azq.ledger.types import RunState, RunView
from azq.presets import host_preset
from azq.presets import preset as preset_of
from azq.process.interrupts import Interrupts
from azq.process.liveness import HANG_AFTER_S
from azq.process.start import die_with_parent
from azq.process.supervisor import Supervisor
from azq.search.search import check_search
from azq.status.events import write_command
from azq.status.observe import Watch, read_weights
from azq.status.spending import money_of, read_spending
from azq.store import Store, open_store
from azq.store.signing import make_key
from azq.wire import keys
from azq.wire.connect import agree_on_schema
from azq.wire.messages import RunRecord

if TYPE_CHECKING:
    from torch import Tensor

    from azq.nets import WeightsMeta

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class UpRequest:
    """What the command line asked for."""

    game: str | None = None
    run: str | None = None
    overrides: Sequence[str] = ()
    until: str | None = None
    config_file: Path | None = None
    preset: str = ""
    as_json: bool = False
    volunteers: bool = False
    port: int | None = None  # of the gateway
    origin: str | None = None  # of the weights that a new run begins with
    freeze: str = ""
    output: TextIO | None = None  # of its lines; standard output by default


def up(request: UpRequest, *, listen: str | None = None, plaintext: bool = False) -> int:
    """Trains until Ctrl-C or the end that was asked for; returns an exit code. `listen`: where other machines reach its brokers."""
    logs.setup("up", to_person=sys.stderr.isatty())
    die_with_parent()
    start = read_start(request)
    where = parse_listen(listen, plaintext)
    if request.volunteers:
        start = dataclasses.replace(start, config=open_gateway(start.config, where.host if where else None, request.port), volunteers=True)
    rundir.make_folder(start.run.home)
    with home_lock(start.run.home), rundir.naming_folder(start.run.home), Brokers(start.config, start.run.home, where) as brokers:
        config = beside_others(brokers.apply(start.config))
        if listen:
            if plaintext:
                log.warning("plaintext", reason="the network in between reads and may change passwords, games and weights")
            log.info("listening", join=f"azq join {config.broker.public_control_url}", token="azq join-token tells it")
        if request.volunteers:
            log.info("volunteers_welcome", link=config.gateway.url or url_of(config.gateway))
        if not knows_roles(config):
            log.warning("one_password", reason=NO_USERS)
        agree_on_schema(brokers.control, upgrade=True)
        make_key(brokers.control, start.run.home)
        list_game(start.run.home, requested_game(request))
        ledger = Ledger(brokers.control)
        watch = Watch(brokers.control)
        view = open_run(ledger, watch.bus, start)
        if start.weights:
            store = open_store(config.store, directory=start.run.path / "weights", client=brokers.control)
            publish_first(ledger, watch.bus, store, start.run.name, start.weights, config.run_sections())
        write_command(watch.bus, "azq up", start.run.name)
        supervisor = Supervisor(hang_after_s=HANG_AFTER_S)
        with Interrupts() as interrupts:
            return Session(start, config, plan_devices(config), ledger, supervisor, watch, interrupts, brokers).run(view)


def open_gateway(config: Config, host: str | None, port: int | None) -> Config:
    """The settings with a gateway for volunteers: at `host`, where that is named, in the clear unless it has a certificate."""
    if not parts.installed("volunteers"):
        raise MissingExtra("--volunteers needs azq.parts.volunteers, which this azq lacks; install azq with all its parts, or leave it out")
    chosen = {name: value for name, value in {"host": host, "port": port}.items() if value is not None}
    gateway = config.gateway.model_copy(update=chosen)
    if not is_loopback(gateway.host) and gateway.tls_certificate is None:
        log.warning("plaintext", reason="tabs and their tokens can be read on the way; gateway.tls_certificate and tls_key end that")
        gateway = gateway.model_copy(update={"plaintext": True})
    check_tls(gateway, "gateway")
    return config.model_copy(update={"gateway": gateway})


def beside_others(config: Config) -> Config:
    """The settings with another port for the dashboard, where none was chosen and the usual one is taken, as by a second `azq up`."""
    daemon = config.daemon
    if "port" in daemon.model_fields_set or free_port(daemon.host, daemon.port):
        return config
    port = free_port(daemon.host, 0)
    log.info("other_port", taken=daemon.port, port=port, setting="daemon.port")
    return config.model_copy(update={"daemon": daemon.model_copy(update={"port": port})})


def free_port(host: str, port: int) -> int:
    """The port where it is free, or any free one for 0; 0 where there is none."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((host, port), family=family) as listener:
            return int(listener.getsockname()[1])
    except OSError:
        return 0


def plan_devices(config: Config) -> DevicePlan:
    """What each device of this machine does; says it, and which are left out, or gone since an earlier start."""
    machine = detect()
    result = plan(machine, Wishes.of(config))
    log.info("device_plan", plan=str(result))
    for device, reason in (result.left_out | vanished(config.home, machine)).items():
        log.warning("gpu_left_out", device=device, reason=reason)
    remember(config.home, machine)
    return result


def read_start(request: UpRequest) -> Start:
    """Settings in their order: preset of the game or the stored run, file, environment, `--set`."""
    machine = load(request.config_file, [text for text in request.overrides if text.startswith("home=")])
    game = absolute(request.game) if request.game else None
    origin = read_origin(machine, request.origin) if request.origin else None
    game = game or (origin.meta.game if origin else None)
    name = check_run_name(request.run or rundir.name_of(game or machine.run.game))
    folder = rundir.RunDir(machine.home, name)
    if folder.exists():
        if preset := request.preset:
            raise ConfigError(f"run {name!r} exists and keeps its settings; choose another --run for --preset {preset}, or leave it out")
        if origin:
            raise ConfigError(
                f"run {name!r} exists and keeps its weights; choose another --run for --from {request.origin}, or leave it out"
            )
        base, host = {name: value for name, value in folder.values().items() if name in RunSections.model_fields}, folder.host_values()
        if game and game != base["run"]["game"]:
            raise ConfigError(f"run {name!r} learns {base['run']['game']}, not {game}; choose another --run")
    else:
        base, host = (read(game or machine.run.game, request.preset) for read in (preset_of, host_preset))
    if origin:
        base = merge(base, origin.settings())
    config = load(request.config_file, [*_chosen(request, game), *request.overrides], base=base | host)
    source = origin.path if origin else folder.settings if folder.exists() else ""
    rules = load_game(with_game(config, requested_game(request)), config.run.game, config.run.params, source)
    check_search(config.search, rules)  # an unknown game ends here, before anything starts
    weights = first_weights(origin, config.run_sections(), rules) if origin else b""
    until = dict(Goals.parse(request.until).until)
    return Start(
        with_game(config, config.run.game),
        folder,
        until,
        request.as_json,
        host,
        weights=weights,
        again=again(request),
        output=request.output,
    )


def requested_game(request: UpRequest) -> str:
    """The game that the person names: by `--game`, else by file, environment or `--set`; not what a run's folder or weights say."""
    return absolute(request.game or load(request.config_file, request.overrides).run.game)


def again(request: UpRequest) -> str:
    """The command that finds home and ports as this one did; what else was set of the run is kept in its folder."""
    places = [text for text in request.overrides if re.match(r"home=|\w+\.(host|port)=", text)]
    file = ["--config", str(request.config_file)] if request.config_file else []
    return shlex.join(["azq", "up", *file, *(word for text in places for word in ("--set", text))])


def _chosen(request: UpRequest, game: str | None) -> Iterator[str]:
    """The run's settings that have options."""
    if game:
        yield f'run.game="{game}"'
    if request.freeze:
        if not request.origin:
            raise ConfigError("--freeze keeps weights that came from elsewhere as they are; name them with --from")
        yield f'learner.freeze="{request.freeze}"'
    if request.volunteers:
        yield 'volunteers.kinds=["selfplay"]'


def open_run(ledger: Ledger, bus: Bus, start: Start) -> RunView:
    """Creates the run, or resumes it with the settings and the end of now."""
    sections = start.config.run_sections()
    views = {view.record.run: view for view in ledger.runs()}
    if start.run.name in views and not start.run.exists():
        raise StateConflict(
            f"the broker remembers run {start.run.name!r}, but its folder {start.run.path} with games and weights is gone; "
            f"choose another --run, put the folder back, or delete {start.run.home / BROKER_FOLDER} to forget every run of this home"
        )
    start.run.create(sections, start.host)
    record = record_of(start.run.name, sections, start.run.path, now_ms(), start.until)
    if start.run.name not in views:
        return _from_folder(ledger, bus, record, start.config) if holds_games(start.run.path) else ledger.create_run(record)
    view = views[start.run.name]
    record = msgspec.structs.replace(
        view.record, sections=record.sections, until=_from_here(ledger, bus, view, start.until), directory=record.directory
    )
    ledger.update_run(record)
    return ledger.set_run_state(start.run.name, RunState.RUNNING) if view.state is not RunState.RUNNING else ledger.run(start.run.name)


def _from_folder(ledger: Ledger, bus: Bus, record: RunRecord, config: Config) -> RunView:
    """The broker was lost and the folder was not: the run goes on from there."""
    game = load_game(config, config.run.game, config.run.params)
    gone = create_from_folder(ledger, bus, record, config.run_sections(), game)
    stored = ledger.counts(record.run).inserted
    log.warning("run_goes_on_from_its_folder", run=record.run, games=stored, written_off=gone)
    return ledger.update_run_until(record.run, _from_here(ledger, bus, ledger.run(record.run), record.until))


def _from_here(ledger: Ledger, bus: Bus, view: RunView, until: dict[str, float]) -> dict[str, float]:
    """A resumed run counts its end from where it stands."""
    weights = read_weights(bus, view.record.run)
    spent = read_spending(bus, keys.cost(view.record.run))
    money = money_of(spent) if spent else 0.0
    done = Done.of(view.active_ms, ledger.counts(view.record.run).finished, weights[0].step if weights else 0, money)
    return Goals(until).later(done)


@dataclass(frozen=True, slots=True)
class Origin:
    """Weights to begin with, and where they are from."""

    path: Path
    state: dict[str, Tensor]
    meta: WeightsMeta

    def settings(self) -> dict[str, dict[str, Any]]:
        """What a run takes over with them: game and network."""
        return {"run": {"game": self.meta.game, "params": self.meta.params}, "network": self.meta.network}


def read_origin(config: Config, named: str) -> Origin:
    """The weights of a file, of `RUN` (its newest), of `RUN:VERSION` or `azq:GAME`; raises `NotFound`, `ConfigError` or `WeightsError`."""
    from azq.nets import from_bytes
    from azq.nets.weights import naming

    run, _, version = named.partition(":")
    if Path(named).is_file():
        path = Path(named)
    elif (shipped := pretrained.named(named)) is not None:
        path = pretrained.verified(shipped)
    else:
        path = weights_file(rundir.RunDir(config.home, check_run_name(run)), version or "latest")
    with naming(path):
        return Origin(path, *from_bytes(path.read_bytes()))


def first_weights(origin: Origin, sections: RunSections, game: Game) -> bytes:
    """Version 1 of a run: all tensors of the origin that fit its network, the others as they are made; says which.

    Raises `ConfigError` where the game is another, or most does not fit.
    """
    from azq.nets import build, load_into, to_bytes
    from azq.nets.weights import fitting

    if origin.meta.game != sections.run.game:
        raise ConfigError(f"{origin.path} has weights of {origin.meta.game}, the run is to learn {sections.run.game}")
    network = build(sections.network, game, seed=sections.run.seed)
    own = network.state_dict()
    taken = fitting(origin.state, own) | _reading_more(origin.state, own)
    if 2 * _numbers(taken) < _numbers(origin.state):
        raise ConfigError(f"most of {origin.path} does not fit the run's network; take its own: leave [network] and run.params out")
    load_into(network, own | taken)
    log.info("begins_with", weights=str(origin.path), tensors=len(taken), fresh=",".join(sorted(own.keys() - taken.keys())) or "none")
    meta = replace(origin.meta, version=1, step=0, params=dict(sections.run.params), network=sections.network.description())
    return to_bytes(network, meta)


def _reading_more(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Kernels (K, C, h, w) of convolutions that read more planes in `own`, which they weigh with zero, so that they say what they said."""
    from torch.nn.functional import pad

    def more(old: Tensor, new: Tensor) -> bool:
        return old.ndim == new.ndim == 4 and new.shape[1] > old.shape[1] and new[:, : old.shape[1]].shape == old.shape

    kernels = {name: value for name, value in state.items() if name in own and more(value, own[name])}
    return {name: pad(value, (0, 0, 0, 0, 0, own[name].shape[1] - value.shape[1])) for name, value in kernels.items()}


def _numbers(state: Mapping[str, Tensor]) -> int:
    return sum(value.numel() for value in state.values())


def publish_first(ledger: Ledger, bus: Bus, store: Store, run: str, data: bytes, sections: RunSections) -> None:
    """Announces them, before a learner is there."""
    from functools import partial

    from azq.learner.publish import Publisher

    publisher = Publisher(bus, store, run, announce=partial(ledger.announce_weights, run))
    publisher.publish(data, 1, 0, blocks=sections.network.blocks, channels=sections.network.channels)
