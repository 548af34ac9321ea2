"""What was measured and chosen, as it is told: lines for people, values for machines. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from azq.parts.lab.calibrate.course import Arrangement, AxisSeen, Performed, TrialJudge, TunedChoice

Trials = Sequence[tuple[Arrangement, Performed | None]]
HEAD = ("processes x threads", "games, ms", "groups", "leaves", "samples/s", "a CPU-second", "of the run", "a game, s", "trials", "ratio")


@dataclass(frozen=True, slots=True)
class TuneReport:
    """All that `azq tune` says."""

    game: str
    setting: str
    evaluator: str
    judge: TrialJudge
    trials: Trials
    start: Arrangement
    tuned: TunedChoice | None  # None: interrupted
    others_cores: float | None = None  # that other programs took; None: unknown

    @property
    def changes(self) -> dict[str, dict[str, Any]]:
        """The settings to write; none where those that are set are kept."""
        return self.tuned.chosen.changes(self.start) if self.tuned else {}

    def values(self) -> dict[str, Any]:
        """For JSON."""
        found: dict[str, Any] = {"game": self.game, "setting": self.setting, "evaluator": self.evaluator, "interrupted": self.tuned is None}
        found |= {"start": asdict(self.start), "changes": self.changes, "others_cores": self.others_cores}
        found["learner"] = asdict(self.judge.learner)
        found["trials"] = [asdict(each) | (self._figures(performed) if performed else {}) for each, performed in self.trials]
        if self.tuned:
            tuned = self.tuned
            found |= {"chosen": asdict(tuned.chosen), "candidate": asdict(tuned.candidate), "ratio": tuned.ratio, "p": tuned.p}
            found["axes"] = [_axis_values(axis, taken) for which, taken in ((tuned.seen, True), (tuned.told, False)) for axis in which]
        return found

    def as_text(self) -> list[str]:
        """For people."""
        return [*self._table(), *(self._verdict(self.tuned) if self.tuned else ["interrupted: nothing is chosen, nothing written"])]

    def _figures(self, found: Performed) -> dict[str, float | None]:
        judge = self.judge
        rates = {"samples_per_s": judge.samples_per_s(found), "samples_per_cpu_s": judge.samples_per_cpu_s(found)}
        return {**found._asdict(), **rates, "run_samples_per_s": judge.score(found), "game_s": judge.game_s(found)}

    def _table(self) -> list[str]:
        axes = [*self.tuned.seen, *self.tuned.told] if self.tuned else []
        ratios = {each: ratio for axis in reversed(axes) for each, ratio in axis.ratios.items()}
        rows: list[tuple[str, ...]] = [HEAD]
        for each in dict.fromkeys(arrangement for arrangement, _ in self.trials):
            found = [performed for arrangement, performed in self.trials if arrangement == each and performed]
            rows.append((*_ways(each), *self._medians(found), str(len(found)), f"{ratios[each]:.2f}" if each in ratios else "-"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]

    def _medians(self, found: Sequence[Performed]) -> tuple[str, ...]:
        if not found:
            return ("too slow to tell", "-", "-", "-")
        figures = [self._figures(each) for each in found]
        columns = [[row[name] for row in figures] for name in ("samples_per_s", "samples_per_cpu_s", "run_samples_per_s", "game_s")]
        return tuple("-" if None in column else f"{median(filter(None, column)):,.1f}" for column in columns)

    def _verdict(self, tuned: TunedChoice) -> list[str]:
        lines = [
            f"samples/s: self-play alone; of the run: with a learner, {self.judge.learner.per_s:.1f} steps/s alone, on the same cores",
            f"ratio: {self._by()} to those as it is set, from the rounds that looked for it; the test below has figures of its own",
        ]
        if tuned.candidate == tuned.start:
            lines.append("nothing was faster than what is set; nothing to write")
        else:
            tested = f"{tuned.candidate}: {tuned.ratio:.2f} times {self._by()} (p {tuned.p:.3f})"
            lines.append(f"{tested}{self._why(tuned)}")
        return [*lines, *(line for axis in tuned.told for line in self._untaken(axis, tuned))]

    def _by(self) -> str:
        return "the samples of a CPU-second" if self.judge.shared else "the run's samples"

    def _why(self, tuned: TunedChoice) -> str:
        if not tuned.changes_nothing:
            return ""
        if tuned.too_long:
            return f"; not taken: games would take more than {self.judge.longer:g} times as long (--longer)"
        return "; not taken: noise may look like this, or too few trials could be measured (--seconds)"

    def _untaken(self, axis: AxisSeen, tuned: TunedChoice) -> list[str]:
        base = axis.ratios.get(axis.best)
        others: Mapping[Arrangement, float] = {each: ratio for each, ratio in axis.ratios.items() if each != axis.best}
        if base is None or not others:
            return []
        best = max(others, key=lambda each: others[each])
        said = f"leaves a step change what is searched, so they are told and not taken (--leaves takes them): {best.leaves}"
        return [f"{said} would make {others[best] / base:.2f} times the samples of {tuned.chosen.leaves}"]


def progress(number: int, of: int, arrangement: Arrangement, found: Performed | None, judge: TrialJudge) -> str:
    """A trial in a line."""
    told = (
        f"{judge.samples_per_s(found):,.0f} samples/s, {judge.samples_per_cpu_s(found):,.0f} a CPU-second" if found else "too slow to tell"
    )
    return f"{number} of about {of}: {arrangement}: {told}"


def _ways(each: Arrangement) -> tuple[str, ...]:
    games = f"{each.games}" + (f", {each.within_ms:g}" if each.within_ms else "")
    return f"{each.processes} x {each.threads}", games, str(each.groups), str(each.leaves)


def _axis_values(axis: AxisSeen, taken: bool) -> dict[str, Any]:
    rows = [asdict(each) | {"ratio": ratio, "too_long": each in axis.too_long} for each, ratio in axis.ratios.items()]
    return {"name": axis.name, "may_be_taken": taken, "arrangements": rows}
