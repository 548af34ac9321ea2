"""`azq weights pretrained`: which weights come with azq, from which runs, and how well they were measured to play."""

from __future__ import annotations

from azq import pretrained
from azq.notation.units import score_text
from azq.pretrained import Card, MeasuredGrade, MeasuredMatch


def pretrained_text(cards: list[Card]) -> list[str]:
    """A line for each, what was measured below it. Pure."""
    lines = []
    for card in cards:
        run = card.training
        head = f"{pretrained.PREFIX}{card.game:<13} {card.size / 1000:>5.0f} kB  {card.network}"
        lines.append(f"{head}; {run.minutes:g} minutes, {run.cpu_seconds:,} CPU-seconds, {run.games:,} games")
        lines += [f"{'':<17} {_graded(grade)}" for grade in card.grades]
        lines += [f"{'':<17} {_played(match)}" for match in card.matches]
    return lines


def _graded(grade: MeasuredGrade) -> str:
    certain = f", a result class lost in {grade.error_share:.1%}" if grade.error_share is not None else ""
    return f"mean loss {grade.mean_loss:g} {grade.unit} on {grade.positions} positions at {grade.num_simulations} simulations{certain}"


def _played(match: MeasuredMatch) -> str:
    if match.gap is not None and match.gap_95 is not None:
        ours, more = score_text(match.points, match.points_95), score_text(match.gap, match.gap_95, sign="+")
        played = f"at {match.num_simulations} simulations, {more} over {match.opponent} in {match.games} games of the same luck"
        return f"{ours} {match.unit} a game {played}"
    against = f"{match.seats - 1} x {match.opponent}" if match.seats > 2 else match.opponent
    elo = f", Elo {match.elo:+d} ({match.elo_low:+d} .. {match.elo_high:+d})" if match.elo is not None else ""
    points = f", {match.points:+.2f} +-{match.points_95:.2f} {match.unit} a game" if match.unit != "result" else ""
    return f"{match.share:.1%} of {match.games} games against {against} at {match.num_simulations} simulations{elo}{points}"
