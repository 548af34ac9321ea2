"""`azq report`: one page about a run that is over or paused, with all that one attaches to a paper; HTML that stands alone, or Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import msgspec

import azq
from azq.bus.base import Bus
from azq.bus.redis import RedisBus
from azq.clock import now_ms
from azq.config import Config
from azq.config.loading import to_toml
from azq.console.samples import figures_of, read
from azq.console.svg import LOOK, line_chart
from azq.console.table import stage_text
from azq.errors import AzqError, ConfigError, StateConflict
from azq.files import write_output
from azq.host.brokers import reading_control
from azq.ledger import Ledger
from azq.ledger.types import KEPT_EVENTS, RunState
from azq.masking import masked_settings
from azq.process.source import commit
from azq.ratings.elo import version_of
from azq.samples.played import OPENING_PLIES
from azq.samples.stats import stats
from azq.status.curves import MEASURES, MOST_POINTS, Course, CurvePoint, read_course
from azq.status.spending import money_of, read_spending
from azq.status.stages import stages_of
from azq.status.strength import NAMES, TEXTS, game_of, headline, situation_of, trends
from azq.status.summary import evaluated
from azq.wire import keys
from azq.wire.codec import decode, skip_unreadable
from azq.wire.machines import Spending
from azq.wire.messages import RunEvent

FAULTS = ("run.failed", "run.restored", "job.failed", "job.requeued", "game.set_aside", "ledger.mended")
EXAMPLES = 5  # of a kind of fault
MATCHES = 40
GAMES = 5_000  # the newest, of which the log is read
STYLE = """main{max-width:980px}h1+p{font-size:16px}h2{margin-top:18px}pre{overflow-x:auto}main svg{width:100%}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(360px,100%),1fr));gap:8px}.end{text-anchor:end}
td:last-child{white-space:normal;overflow-wrap:anywhere;min-width:20ch}text{font-size:11px;fill:var(--colour,var(--muted));stroke:none}.title{font-weight:600;fill:var(--ink)}
g{fill:var(--colour);stroke:var(--colour)}"""


@dataclass(frozen=True, slots=True)
class ReportSection:
    """A part of the page: pictures, a table, or a text as it is."""

    title: str
    head: tuple[str, ...] = ()
    rows: Sequence[Sequence[str]] = ()
    pictures: Sequence[str] = ()  # SVG
    text: str = ""
    note: str = ""


def report(config: Config, run: str, out: Path) -> Path:
    """Writes the page, Markdown where the file is called so. Raises `NotFound`, `StateConflict` for a run at work, `ConfigError`."""
    if out.suffix not in (".html", ".md"):
        raise ConfigError(f"--output {out} ends neither in .html nor in .md; name it so")
    with reading_control(config) as client:
        bus = RedisBus(client)
        course, events, spent = read_course(Ledger(client), bus, run), read_events(bus, run), read_spending(bus, keys.cost(run))
    if course.view.state is RunState.RUNNING:
        raise StateConflict(f"run {run} is still running, and its report would be half a one; stop `azq up`, or `azq runs finish {run}`")
    title, sections = f"Run {run}", [*sections_of(course, events, spent), recorded_games(config, run)]
    page = as_markdown(title, sections) if out.suffix == ".md" else as_html(title, sections)
    write_output(out, page.encode())
    return out


def read_events(bus: Bus, run: str) -> list[RunEvent]:
    """What became of the run and its jobs, oldest first, as far as it is kept."""
    results = []
    for entry in bus.after(keys.events(run), "0", count=2 * KEPT_EVENTS):
        with skip_unreadable(entry.place):
            results.append(decode(entry.frame, RunEvent))
    return results


def sections_of(course: Course, events: Sequence[RunEvent], spent: Spending | None = None) -> list[ReportSection]:
    """The whole page. Pure but for this azq's own version."""
    settings = masked_settings(msgspec.json.decode(course.view.record.sections))
    values = trends(game_of(course.view.record), course.standing)
    situation = situation_of(course.view, course.standing, values, course.counts.finished, int(course.reached.steps))
    return [
        ReportSection("", ("", ""), list(_heads(course, settings, spent)), note=headline(situation)),
        _timeline(course, events),
        ReportSection("Curves", pictures=list(_charts(course))),
        _versions(course),
        _matches(course),
        ReportSection(
            "Ledger",
            ("count", ""),
            [(name, str(value)) for name, value in {**asdict(course.counts), "balanced": course.counts.balanced}.items()],
        ),
        _cost(course),
        _faults(course, events),
        ReportSection("Settings", text=to_toml(settings)),
    ]


def recorded_games(config: Config, run: str) -> ReportSection:
    """What the newest games of the log look like, by source; says why where they are not on this host."""
    try:
        rules, played = read(config, run, GAMES, OPENING_PLIES)
    except AzqError as error:
        return ReportSection("Recorded games", note=f"Unknown: {error}.")
    columns = {name: figures_of(stats(rules, rows)) for name, rows in played.groups("source").items()}
    figures = next(iter(columns.values()))
    rows = [(figure, *(column[figure] for column in columns.values())) for figure in figures]
    return ReportSection(f"Recorded games (the newest {GAMES:,} at most)", ("by source", *columns), rows)


def _heads(course: Course, settings: Mapping[str, Any], spent: Spending | None) -> Iterator[tuple[str, str]]:
    view = course.view
    yield "game", str(settings.get("run", {}).get("game", ""))
    yield "state", f"{view.state}" + (f": {view.reason}" if view.reason else "")
    yield "created", _time(view.record.created_ms)
    yield "active", f"{view.active_ms / 60_000:.1f} minutes"
    yield "goals", ", ".join(f"{name}={limit:g}" for name, limit in view.record.until.items()) or "no end"
    yield "games", f"{course.counts.finished:,}"
    yield "steps", f"{max([int(course.reached.steps), *(event.step for event in course.weights)]):,}"
    for name, curve in _measured(course):
        point = max(curve, key=lambda point: point.weight_version or 0)
        yield NAMES[name], f"{_interval(point, name)}, weights {point.weight_version}"
    if spent is not None:
        unknown = any(time.unpriced_ms for time in spent.machines.values())
        yield "machines cost", f"{money_of(spent):,.2f} {spent.currency}" + (", and those without a known price" if unknown else "")
    source = commit()
    yield "report", f"azq {azq.__version__}{f', commit {source}' if source else ''}, {_time(now_ms())}"


def _timeline(course: Course, events: Sequence[RunEvent]) -> ReportSection:
    """Its stages, and each change of its state."""
    stages = stages_of(course.view, course.firsts, evaluated(course.standing), course.view.changed_ms)
    rows: list[tuple[str, str, str]] = [(stage.name, _time(stage.began_ms), stage_text(stage)) for stage in stages]
    rows += [(event.kind, _time(event.at_ms), event.about.get("reason", "")) for event in events if event.kind.startswith("run.")]
    note = "To the first finished game, to the first step of training, to the run's end, to its last evaluation; pauses do not count."
    return ReportSection("Timeline", ("stage or change", "began", "lasted"), rows, note=note)


def _charts(course: Course) -> Iterator[str]:
    curves = course.curves("minutes")
    for name, curve in _measured(course):
        bounded = ", with 95 % intervals" if curve[0].low is not None else ""
        yield line_chart(NAMES[name] + bounded, {name: curve}, "minutes", TEXTS[name].format)
    losses = {name: curves[f"loss_{name}"] for name in ("policy", "value") if f"loss_{name}" in curves}
    if losses:
        yield line_chart("losses", losses, "minutes", lambda value: f"{value:.2f}")
    every = max(1, -(-len(course.points) // MOST_POINTS))
    rates = [CurvePoint(x, point.games_per_s) for x, point in zip(course.on("minutes").tolist()[1:], course.points, strict=True)][::every]
    if rates:
        yield line_chart("games/s", {"games/s": rates}, "minutes", lambda value: f"{value:.3g}")


def _versions(course: Course) -> ReportSection:
    measured = {name: {point.weight_version: point for point in curve} for name, curve in _measured(course)}
    rows = [
        (
            str(event.version),
            f"{event.step:,}",
            _time(event.published_ms),
            f"{event.blocks}x{event.channels}" if event.blocks else "",
            *(_interval(points[event.version], name) if event.version in points else "" for name, points in measured.items()),
            event.sha256,
        )
        for event in sorted(course.weights, key=lambda event: event.version)
    ]
    return ReportSection("Weights", ("version", "step", "published", "network", *(NAMES[name] for name in measured), "sha256"), rows)


def _matches(course: Course) -> ReportSection:
    fixed = [rating for rating in course.standing.ratings if version_of(rating.player) is None]
    rows = []
    for match in course.standing.matches:
        share = f"{match.points:,.0f} - {match.second_points:,.0f}" if match.seats == 1 else f"{match.score:.1%}"
        played = f"{match.wins} / {match.draws} / {match.losses}"
        rows.append((match.first, match.second, played, share, match.progress, match.error))
    text = ", ".join(f"{rating.player} {rating.elo:+.0f}" for rating in fixed)
    note = f"Ratings of the opponents that never change: {text}." if text else ""
    if any(match.seats == 1 for match in course.standing.matches):
        note = "A game for one: mean scores of both, with the same luck; who scored more has won."
    return ReportSection(
        f"Matches (the newest {MATCHES})",
        ("first", "second", "won / drawn / lost", "share", "so far", "failed by"),
        rows[:MATCHES],
        note=note,
    )


def _cost(course: Course) -> ReportSection:
    spent: Counter[str] = Counter()
    for ran_s, point in zip(course.ran_s.tolist(), course.points, strict=True):
        spent.update({role: cores * ran_s for role, cores in point.cores.items()})
    rows = [(role, f"{seconds:,.0f}") for role, seconds in spent.items()]
    total = spent.total()
    rows += [("all", f"{total:,.0f}"), ("games per CPU-second", f"{course.reached.games / total:.3g}")] if total else []
    note = "As processes say in their heartbeats; those that several runs share count for each. Daemon, brokers and arena are not in it."
    return ReportSection("Cost in CPU-seconds", ("role", ""), rows, note=note if rows else "Nothing was recorded of it.")


def _faults(course: Course, events: Sequence[RunEvent]) -> ReportSection:
    results = [event for event in events if event.kind in FAULTS]
    rows: list[tuple[str, ...]] = []
    for kind, count in Counter(event.kind for event in results).items():
        shown = [event for event in results if event.kind == kind][-EXAMPLES:]
        for event in shown:
            about = ", ".join(f"{name} {value}" for name, value in event.about.items() if value)
            rows.append((*((kind, str(count)) if event is shown[0] else ("", "")), _time(event.at_ms), about))
    rows += [("match", "", _time(match.finished_ms), match.error) for match in course.standing.matches if match.error]
    rows += [("worker", "", "", str(stranger)) for stranger in course.standing.strangers]
    counts = course.counts
    note = f"{counts.abandoned} games abandoned, {counts.duplicates_dropped} duplicates dropped."
    return ReportSection("Faults", ("what", "times", "when, the newest", "about"), rows, note=note if rows else f"None is recorded. {note}")


def _measured(course: Course) -> list[tuple[str, list[CurvePoint]]]:
    """What the game is judged by first, then what else is known of its strength."""
    curves = course.curves("minutes")
    return [(name, curves[name]) for name in MEASURES if name in curves]


def _interval(point: CurvePoint, name: str) -> str:
    text = TEXTS[name].format
    return text(point.y) if point.low is None else f"{text(point.y)} ({text(point.low)} to {text(point.high)})"


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def as_html(title: str, sections: Sequence[ReportSection]) -> str:
    """The page with its pictures and style; it asks for nothing else."""
    parts = [f"<h1>{escape(title)}</h1>"]
    for section in sections:
        parts.append(f"<h2>{escape(section.title)}</h2>" if section.title else "")
        parts.append(f'<div class="charts">{"".join(section.pictures)}</div>' if section.pictures else "")
        parts.append(f"<p>{escape(section.note)}</p>" if section.note else "")
        parts.append(_html_table(section) if section.rows else "")
        parts.append(f"<pre>{escape(section.text)}</pre>" if section.text else "")
    view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f"{view}<title>{escape(title)}</title><style>{LOOK}{STYLE}</style>"
    body = "\n".join(filter(None, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>\n{body}\n</main></body></html>\n'


def _html_table(section: ReportSection) -> str:
    names = "".join(f"<th>{escape(name)}</th>" for name in section.head)
    head = f"<thead><tr>{names}</tr></thead>" if any(section.head) else ""
    rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in section.rows)
    return f'<div class="scroll"><table>{head}' + "".join(f"<tr>{row}</tr>" for row in rows) + "</table></div>"


def as_markdown(title: str, sections: Sequence[ReportSection]) -> str:
    """The same without its pictures. Pure."""
    lines = [f"# {title}", ""]
    for section in sections:
        lines += [f"## {section.title}", ""] if section.title else []
        lines += [section.note, ""] if section.note else []
        if section.rows:
            rows = [section.head, ["---"] * len(section.head), *section.rows]
            lines += [*("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows), ""]
        lines += ["```toml", section.text, "```", ""] if section.text else []
    return "\n".join(lines)
