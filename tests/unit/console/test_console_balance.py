"""`azq balance` for people."""

from dataclasses import replace

from azq.console.balance import balance_text
from azq.status.balance import Balance, OpeningShare, ResultShare


def test_long_lists_are_cut_and_empty_ones_said() -> None:
    share = ResultShare(10, 0.6, 0.31, 0.83)
    found = Balance(
        10, share, [share, share], 0.5, 0.2, [5, 5, 7, 9, 9], 0.05, [], list(range(25)), 1, [OpeningShare([4, 0], 1.0)], [share]
    )
    told = balance_text(found)
    assert "never legal          none" in told
    assert "18 19 and 5 more: --json" in told
    assert "first player         0.600 (0.310 to 0.830); fair is 0.500" in told
    assert "first player         0.600 (0.310 to 0.830) of the 10 games that no random plies began; fair" in balance_text(
        replace(found, games=99)
    )


def test_a_game_for_one_tells_scores_and_no_shares() -> None:
    share = ResultShare(10, 1.0, 0.7, 1.0)
    found = Balance(10, share, [share], 1.0, 0.0, [5, 5, 7, 9, 9], 0.0, [], [], 1, [], [share], [10, 20, 30, 40, 12345.6], [30.5])
    told = balance_text(found)
    assert "does not apply: one player" in told
    assert "score                0% 10, " in told
    assert "  10                 30.5" in told
    assert "first player" not in told
