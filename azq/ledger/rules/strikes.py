"""Rules of games that kill whoever plays them: suspected, played in ever smaller company, at last set aside.

A lease that ends badly (it ran out, or its process died) gives each game that it held a strike; a move that is written down later takes all
of a game's strikes away, for a game that kills at some position never gets past it. Which of a thousand games did it?

- After one strike a game is played as ever: most workers die of other things, and then nothing is slower than before.
- From the second on it is a suspect. Suspects wait at the back of the pool; a lease plays `COMPANY` of them and nothing else, so that the
  search of no other game is lost. Those that move on are free again, at once, and the lease fills up with other games.
- From the fourth on it is played alone, and when its lease has died so three times it is abandoned. So a lethal game kills seven workers
  in all, however many games were played with it, and clears the others of suspicion in about n / 64 short leases.
- Suspects are only played while the run is sound: some game moved on since the last lease ended badly. Where everything dies (a broken
  installation, a host without memory) no game is found guilty; the failures count as the job's, which fail the run. A lease that dies of
  suspects is not the job's failure. In lockstep there may be nothing but suspects, all in the pool: they are played then, for no other
  game could ever move.

An innocent game is set aside only where seven leases in a row die before it moves once. Workers write moves down half a second after
they began: in fleets played through with these rules (tests/unit/ledger/test_ledger_strikes.py) none was, among thirteen thousand deaths
of workers that lived five to fifteen seconds on average.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import takewhile

from azq.ledger.rules.state import State, put

SUSPECT = 2  # strikes
COMPANY = {2: 64, 3: 8}  # suspects of so many strikes that a lease plays together; with more strikes it plays one
SET_ASIDE = 7  # strikes: the last three of them alone
REASON = "killed its worker 3 times while it was played alone, and never moved on"


def is_suspect(state: State, uid: int) -> bool:
    """Whether a game is to be played with none but its like."""
    return state.strikes.get(uid, 0) >= SUSPECT


def company(strikes: int) -> int:
    """How many games of so many strikes a lease plays at once."""
    return COMPANY.get(strikes, 1)


def strike(state: State, number: int) -> tuple[State, bool]:
    """Gives the games of a lease that ended badly a strike each and abandons the guilty; True where the games were suspects before."""
    row = state.jobs[number]
    if not row.held:
        return state, False
    tested = any(is_suspect(state, uid) for uid in row.held)
    struck = {uid: state.strikes.get(uid, 0) + 1 for uid in row.held}
    guilty = {uid for uid, strikes in struck.items() if strikes >= SET_ASIDE}
    state = replace(
        state,
        sound=False,
        strikes={uid: strikes for uid, strikes in {**state.strikes, **struck}.items() if uid not in guilty},
        open={uid: record for uid, record in state.open.items() if uid not in guilty},
        abandoned={**state.abandoned, **dict.fromkeys(sorted(guilty), REASON)},
    )
    return put(state, number, replace(row, held=row.held - guilty)), tested


def moved_on(state: State, uids: Iterable[int]) -> State:
    """Games that moved are no suspects, and show that the run is sound."""
    moved = set(uids)
    if not moved or not state.strikes:
        return state
    return replace(state, sound=True, strikes={uid: strikes for uid, strikes in state.strikes.items() if uid not in moved})


def under_test(state: State, count: int, openable: int) -> tuple[int, ...]:
    """The suspects that the next lease plays, at most `count`: those at the end of the pool that have as many strikes as its last.

    `openable` games could be opened instead.
    """
    if not (state.pool and is_suspect(state, state.pool[-1])):
        return ()
    nothing_else = not openable and len(state.pool) == len(state.open) and is_suspect(state, state.pool[0])
    if not (state.sound or nothing_else):
        return ()
    strikes = state.strikes[state.pool[-1]]
    alike = takewhile(lambda uid: state.strikes.get(uid) == strikes, reversed(state.pool))
    return tuple(alike)[: min(count, company(strikes))]
