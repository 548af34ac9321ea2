"""What keeps a run from learning: a pure function a rule, from facts to what it found, or nothing. Causes come before what follows.

A share is judged by its 95 % interval and a mean by its standard error, so that few games raise no alarm. What a game played well looks
like too (all draws, one side winning, no choice left) is a finding only where nothing says that it is played well: `Facts.mastered`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from azq.config import SearchConfig
from azq.findings import Change
from azq.replay.window import stall_selfplay
from azq.status.why.facts import Counted, CurveFacts, Facts, PlayedFacts

FEWEST_GAMES = 50  # with 50 of 50 a share is at least 93 %
SURE_GAMES = 400  # and with so many 99 %
FEWEST_STEPS = 500  # a learner of any preset has moved by then
LONGEST_WAIT_S = 1800.0  # for the first step
PATIENCE_S = 300.0  # with a self-play that stands still
SIGMAS = 3.0
NARROW = 0.2  # results that differ by less leave q as good as equal where it counts by all of [-1, 1]

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class LearningFault:
    """What is wrong, by which figures, and the one setting to change."""

    rule: str
    evidence: str
    setting: Change
    confidence: Confidence
    plan: tuple[str, ...] = ()  # what to try next, in this order, where one setting may not be enough

    def __str__(self) -> str:
        return f"{self.rule}: {self.evidence}; {self.setting} [{self.confidence}]"


def findings(facts: Facts) -> list[LearningFault]:
    """What is wrong, causes first; what only follows from a cause that was found is left out."""
    results = [finding for rule in RULES if (finding := rule(facts)) is not None]
    explained = {symptom for finding in results for symptom in FOLLOWS.get(finding.rule, ())}
    return [finding for finding in results if finding.rule not in explained]


def blind(facts: Facts) -> dict[str, tuple[str, ...]]:
    """What is missing, and the rules that could not look for want of it."""
    missing = {
        "games": facts.played is None or facts.played.games < FEWEST_GAMES,
        "history": facts.curves is None,
    }
    return {
        what: tuple(rule.__name__ for rule in RULES if (rule in OF_HISTORY) == (what == "history")) for what in missing if missing[what]
    }


def rewards(facts: Facts) -> LearningFault | None:
    """No result ever differs from 0: there is nothing to learn from."""
    played = facts.played
    if played is None or played.rewarded or played.games < FEWEST_GAMES or facts.mastered:
        return None
    by_chance = f"; random play: {facts.probe.random_rewarded}" if facts.probe else ""
    key, value = _of_game(facts)
    return LearningFault(
        "rewards", f"returns are zero in all of {played.games:,} games{by_chance}", Change(key, value, REPAIRED), _sure(played)
    )


def observations(facts: Facts) -> LearningFault | None:
    """The network sees the same where different things may be done, or always the same."""
    played = facts.played
    if played is None or played.observations.of < FEWEST_GAMES:
        return None
    mistaken, different = played.mistakable, played.observations
    if mistaken.low < 0.05 and different.count > 3:
        return None
    evidence = f"{different.count:,} different observations of {different.of:,} positions"
    evidence += f", {mistaken.share:.1%} of which look like one with other legal actions"
    key, value = _of_game(facts)
    return LearningFault("observations", evidence, Change(key, value, REPAIRED), _sure(played))


def targets(facts: Facts) -> LearningFault | None:
    """Searches that compare nothing teach the network what it says already."""
    played, curves, search = facts.played, facts.curves, facts.settings.search
    if played is None or played.sharpness is None or played.games < FEWEST_GAMES:
        return None
    budget = max([search.num_simulations, *(stage.num_simulations for stage in search.schedule)])
    # The setting as well: where subtrees are carried over, a healthy ply may need hardly a new simulation.
    if max(budget, played.simulations) < 4 and played.legal > 1.5:
        evidence = f"{played.simulations:.1f} simulations a ply where {played.legal:.1f} moves are legal: targets repeat priors"
        return LearningFault("targets", evidence, Change("search.num_simulations", search.num_simulations, 32), _sure(played))
    if curves is None or curves.step < FEWEST_STEPS or not _mute(search, played.legal):
        return None
    learned = curves.loss_policy[1] - played.entropy  # cross-entropy less entropy: how far targets are from what the network says
    if not learned < 0.05 * played.entropy:  # NaN, too
        return None
    evidence = f"targets lie {max(0.0, learned):.4f} nats from the network's priors, at an entropy of {played.entropy:.2f}"
    evidence += f" and {played.simulations:.0f} simulations a ply"
    return LearningFault("targets", evidence, _sharper(search, played.spread), _sure(played))


def openings(facts: Facts) -> LearningFault | None:
    """All games begin alike, so that little of the game is ever seen."""
    played, probe, settings = facts.played, facts.probe, facts.settings
    if played is None or probe is None or played.games < FEWEST_GAMES or facts.mastered:
        return None
    if played.openings > 3 or probe.openings < 12:
        return None
    evidence = f"{played.openings} openings of {played.opening_plies} plies make 95 % of {played.games:,} games"
    evidence += f", and {'more than ' if probe.openings >= 64 else ''}{probe.openings} are possible"
    if settings.search.algorithm == "puct" and settings.search.temperature < 0.5:
        change = Change("search.temperature", settings.search.temperature, 1.0)
    elif settings.search.algorithm == "gumbel" and settings.search.gumbel_scale < 0.5:
        change = Change("search.gumbel_scale", settings.search.gumbel_scale, 1.0)
    else:
        plies = settings.selfplay.random_opening_plies
        change = Change("selfplay.random_opening_plies", plies, max(4, 2 * plies))
    return LearningFault("openings", evidence, change, _sure(played))


def cap(facts: Facts) -> LearningFault | None:
    """A limit of plies ends games, not their rules: how they end is never learnt."""
    played = facts.played
    if played is None or played.capped.of < FEWEST_GAMES or played.capped.low < 0.2:
        return None
    params = facts.settings.run.params
    named = next((name for name in params if any(word in name for word in ("max", "cap", "limit", "plies", "length"))), None)
    if not named and not played.rewarded:  # nothing is ever decided: `rewards` says so
        return None
    change = Change(f"run.params.{named}", params[named], 4 * int(params[named])) if named else Change(*_of_game(facts), REPAIRED)
    return LearningFault("cap", f"{played.capped} games end undecided at a limit of {played.longest} plies", change, _sure(played))


def draws(facts: Facts) -> LearningFault | None:
    """Nearly no game has a winner, though nothing says that this is how it is played well."""
    played = facts.played
    if played is None or len(played.wins) < 2 or facts.mastered:
        return None
    shared = Counted(played.shared, played.games)
    if shared.share < 0.97 or shared.low < 0.9:
        return None
    by_chance = f"; random play: {facts.probe.random_shared}" if facts.probe else ""
    plies = facts.settings.selfplay.random_opening_plies
    change = Change("selfplay.random_opening_plies", plies, max(6, 2 * plies))
    return LearningFault("draws", f"draws are {shared} games{by_chance}", change, _sure(played))


def one_side(facts: Facts) -> LearningFault | None:
    """One seat wins nearly all games: values tell nothing that the seat does not."""
    played = facts.played
    if played is None or len(played.wins) < 2 or facts.mastered:
        return None
    seat, wins = max(enumerate(played.wins), key=lambda entry: entry[1])
    won = Counted(wins, played.games)
    if won.share < 0.99 or won.low < 0.92:
        return None
    by_chance = f"; of random games {Counted(facts.probe.random_wins[seat], facts.probe.random_shared.of)}" if facts.probe else ""
    plies = facts.settings.selfplay.random_opening_plies
    change = Change("selfplay.random_opening_plies", plies, max(4, 2 * plies))
    return LearningFault("one_side", f"player {seat + 1} wins {won} games{by_chance}", change, _sure(played))


def entropy(facts: Facts) -> LearningFault | None:
    """Policy targets leave no choice where nothing was mastered, or all of it after long training."""
    played, curves, search = facts.played, facts.curves, facts.settings.search
    if played is None or played.sharpness is None or played.games < FEWEST_GAMES or facts.mastered:
        return None
    sharp = played.sharpness
    text = f"policy targets have {sharp.mean:.1%} of the greatest entropy there is ({played.entropy:.2f} nats)"
    if sharp.mean + SIGMAS * sharp.error < 0.03:
        if search.algorithm == "gumbel":
            change = Change("search.c_scale", search.c_scale, min(1.0, search.c_scale / 10))
        elif search.c_puct < 0.5:
            change = Change("search.c_puct", search.c_puct, 1.5)
        else:
            change = Change("search.dirichlet_fraction", search.dirichlet_fraction, max(0.25, min(1.0, 2 * search.dirichlet_fraction)))
        return LearningFault("entropy", f"{text}: collapsed", change, _sure(played))
    # Healthy runs of all presets lay at 0.28 to 0.68 after some hundred steps, targets that follow noise and priors at 0.84.
    if curves is not None and curves.step >= 2 * FEWEST_STEPS and sharp.mean - SIGMAS * sharp.error > 0.8:
        narrow = f"; results differ by {played.spread:.2f} of -1 to 1" if played.spread < NARROW else ""
        text += f" after {curves.step:,} steps: it never fell{narrow}"
        return LearningFault("entropy", text, _sharper(search, played.spread), _sure(played))
    return None


def calibration(facts: Facts) -> LearningFault | None:
    """Values say nothing of how games end, or the opposite."""
    played, learner = facts.played, facts.settings.learner
    if played is None or played.slope is None or played.versions[1] < 5:
        return None
    slope = played.slope
    if slope.mean + SIGMAS * slope.error >= 0.25:
        return None
    evidence = f"where root values rise by 1, results rise by {slope.mean:.2f} (95 %: {slope.mean - 2 * slope.error:.2f} to "
    evidence += f"{slope.mean + 2 * slope.error:.2f}; calibrated: 1)"
    if learner.td_lambda < 1:
        change = Change("learner.td_lambda", learner.td_lambda, 1.0)
    elif learner.root_value_fraction > 0:
        change = Change("learner.root_value_fraction", learner.root_value_fraction, 0.0)
    else:
        change = Change("learner.value_weight", learner.value_weight, 2 * learner.value_weight)
    return LearningFault("calibration", evidence, change, _sure(played))


def window(facts: Facts) -> LearningFault | None:
    """The learner draws from too few samples."""
    curves, learner = facts.curves, facts.settings.learner
    if curves is None or curves.step < FEWEST_STEPS or curves.samples < 4 * learner.min_window:
        return None
    batches = curves.window / learner.batch_size
    if batches >= 4 or curves.window < learner.max_window:
        return None
    evidence = f"the window has {curves.window:,} samples, {batches:.1f} batches: too young, it is forgotten while it is learned"
    return LearningFault("window", evidence, Change("learner.max_window", learner.max_window, 64 * learner.batch_size), "high")


def limiter(facts: Facts) -> LearningFault | None:
    """Samples per insert, or the samples before the first step, keep one side from working."""
    curves, learner = facts.curves, facts.settings.learner
    if curves is None or not curves.samples:
        return None
    if not curves.step:
        return _never_begins(curves, facts)
    drawn = curves.step * learner.batch_size / curves.samples
    change = Change("learner.samples_per_insert", learner.samples_per_insert, 4.0)
    if drawn < 0.25 and learner.samples_per_insert < 0.5 and curves.samples > 4 * learner.min_window:
        return LearningFault(
            "limiter", f"the learner waits: each of {curves.samples:,} samples was drawn {drawn:.3f} times", change, "high"
        )
    stalled = stall_selfplay(curves.samples, curves.step * learner.batch_size, learner)
    if stalled and curves.standing_s > PATIENCE_S:
        evidence = f"self-play waits for the learner, {curves.standing_s:.0f} s without a new sample; each of {curves.samples:,} was drawn "
        evidence += f"{drawn:.2f} of {learner.samples_per_insert:g} times"
        return LearningFault("limiter", evidence, Change(change.key, change.now, min(4.0, learner.samples_per_insert / 4)), "high")
    return None


def _never_begins(curves: CurveFacts, facts: Facts) -> LearningFault | None:
    learner = facts.settings.learner
    missing = learner.min_window - curves.samples
    if missing <= 0 or curves.ran_s < 60:
        return None
    wait_s = missing * curves.ran_s / curves.samples
    if wait_s < LONGEST_WAIT_S:
        return None
    evidence = f"no step yet: {curves.samples:,} of {learner.min_window:,} samples after {curves.ran_s:.0f} s, {wait_s / 60:,.0f} min to go"
    fewer = max(2 * learner.batch_size, 1 << max(1, curves.samples).bit_length())
    return LearningFault("limiter", evidence, Change("learner.min_window", learner.min_window, min(fewer, learner.min_window // 2)), "high")


def loss(facts: Facts) -> LearningFault | None:
    """Training moves nothing."""
    curves, settings = facts.curves, facts.settings
    if curves is None or curves.step < FEWEST_STEPS or curves.first_step > curves.step / 5 or facts.mastered:
        return None
    (policy, policy_now), (value, value_now) = curves.loss_policy, curves.loss_value
    if not (_moved(policy, policy_now) < 0.02 and _moved(value, value_now) < 0.02):
        return None
    evidence = f"losses stand still over {curves.step:,} steps: policy {policy:.3f} to {policy_now:.3f}, "
    evidence += f"value {value:.3f} to {value_now:.3f}"
    rate = settings.learner.learning_rate
    if settings.learner.freeze != "none":
        change = Change("learner.freeze", settings.learner.freeze, "none")
    else:
        change = Change("learner.learning_rate", rate, 2e-3 if not 1e-4 <= rate <= 1e-2 else 3 * rate if rate < 2e-3 else rate / 3)
    return LearningFault("loss", evidence, change, "high" if curves.step >= 4 * FEWEST_STEPS else "medium", PLAN)


def _moved(first: float, last: float) -> float:
    return abs(last - first) / max(1e-9, abs(first))


def _mute(search: SearchConfig, legal: float) -> bool:
    """Whether settings explain that what searches find hardly reaches the targets: values that weigh little, or fewer visits than moves.

    A game that is played well has targets near the network's priors, too.
    """
    if search.algorithm == "gumbel":
        return search.c_scale * (search.c_visit + search.num_simulations) < 5  # times a difference of values (Danihelka et al., eq. 8)
    return search.num_simulations < legal


def _sharper(search: SearchConfig, spread: float) -> Change:
    """Has targets say more of what the search found, where results differ by `spread`."""
    if search.algorithm == "gumbel" and search.c_scale < 0.3 and search.q_range >= 2:
        return Change("search.c_scale", search.c_scale, 1.0)
    if search.algorithm == "puct" and search.c_puct > 4:
        return Change("search.c_puct", search.c_puct, 1.5)
    if spread < NARROW and search.q_range >= 2:
        return Change("search.q_range", search.q_range, max(0.02, round(2 * spread, 2)))
    return Change("search.num_simulations", search.num_simulations, 4 * search.num_simulations)


def _of_game(facts: Facts) -> tuple[str, str]:
    return "run.game", facts.settings.run.game


def _sure(played: PlayedFacts) -> Confidence:
    return "high" if played.games >= SURE_GAMES else "medium" if played.games >= 2 * FEWEST_GAMES else "low"


REPAIRED = "the game with its rules put right: `azq games check` plays it"
PLAN = (
    "learner.learning_rate: three times and a third of what it is",
    "search.num_simulations: twice as many, where targets are close to priors",
    "network.blocks and network.channels: a larger network, where the losses of a short run fall and then stop",
    "`azq games check GAME`: whether observations tell positions apart and results are those of the rules",
)
Rule = Callable[[Facts], LearningFault | None]
RULES: tuple[Rule, ...] = (
    *(rewards, observations, targets, openings, cap, limiter, window),  # causes
    *(draws, one_side, entropy, calibration, loss),  # which may follow from them
)
OF_HISTORY = (limiter, window, loss)  # all others look at games
FOLLOWS = {  # what a cause brings about, and what its cure may take away
    "rewards": ("draws", "entropy", "calibration", "loss", "targets"),
    "observations": ("entropy", "calibration", "loss", "one_side", "draws"),
    "targets": ("entropy", "loss", "calibration", "openings"),
    "openings": ("draws", "one_side", "entropy", "calibration", "loss"),
    "cap": ("rewards", "draws", "entropy", "calibration", "loss"),
    "limiter": ("loss", "window", "calibration"),
    "window": ("calibration", "loss"),
    "draws": ("calibration", "loss", "entropy"),
    "one_side": ("calibration", "loss", "entropy"),
}
