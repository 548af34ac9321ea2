"""Rules and search, compiled from the C++20 headers in `azq/core`.

Letters: A actions, P bytes of a packed observation, T plies of a game, L leaves, V values per leaf
(1 for two-player zero-sum games: the value for the player to move; else one per seat).
Packed observation: the planes' bits (plane-major, row-major, little bit order, padded to a byte), then S int8 scalars.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHANCE_PLAYER: int  # -1, as in OpenSpiel
TERMINAL_PLAYER: int  # -4, as in OpenSpiel

def game_names() -> list[str]: ...
def load_game(name: str, params: dict[str, int | float | str | bool]) -> Game: ...

class Game:
    """The rules of one game with its parameters; OpenSpiel's names."""

    @property
    def name(self) -> str: ...
    @property
    def params(self) -> dict[str, Any]: ...
    def num_distinct_actions(self) -> int: ...
    def num_players(self) -> int: ...
    def max_game_length(self) -> int: ...
    def new_initial_state(self) -> State: ...
    def observation_planes(self) -> tuple[int, int, int]: ...  # planes, rows, columns
    def num_scalars(self) -> int: ...  # S
    def packed_size(self) -> int: ...  # P
    def value_size(self) -> int: ...  # V
    def max_chance_outcomes(self) -> int: ...  # 0: no chance
    def is_chance(self) -> bool: ...
    def is_hidden(self) -> bool: ...  # some players know what others do not
    def has_margin(self) -> bool: ...
    def num_hidden(self) -> int: ...  # H, hidden facts that a belief head may predict
    def scores(
        self,
    ) -> tuple[float, float, float] | None: ...  # of a game whose result is a score: lowest, highest, step of the compression
    def action_layout(self) -> str: ...  # where actions lie on the board: cells, columns or nowhere ("")
    def token_groups(self) -> dict[str, NDArray[np.int32]]: ...  # (tokens, bits) each: places among the planes' bits
    def outcome_combination(self) -> tuple[NDArray[np.float32], float] | None: ...  # weights (K,), bias: value = bias + weights @ outcomes
    def state_from_notation(self, text: str) -> State:
        """The position of one line of `State.notation`; raises ConfigError naming the rule it breaks. Its history is empty."""
    def num_symmetries(self) -> int: ...  # identity included
    def action_permutation(self, symmetry: int) -> NDArray[np.int32]: ...  # (A,): action a becomes permutation[a]
    def plane_permutation(self, symmetry: int) -> NDArray[np.int32]: ...  # (rows*columns,): cell c of the image is cell permutation[c]
    def replay(self, actions: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int8], NDArray[np.float32]]:
        """Replays a game.

        Packed observations (T, P), legal masks (T, A), players to move (T,), returns (num_players,), zeros if unfinished.
        Where chance acts the player is -1 and the rows are zero.

        Raises IllegalActionError (azq.errors) naming the ply.
        """

    def targets(self, actions: NDArray[np.uint16]) -> dict[str, Any]:
        """What a finished game teaches besides its result; zeros for what the game does not declare or if unfinished.

        margins (num_players,) f32; outcomes (num_players, K) f32; hidden (T, H) u8 from the view of the player to move;
        truncated: a safety cap ended it. Raises as `replay`.
        """

class State:
    """One position; OpenSpiel's names."""

    def current_player(self) -> int: ...
    def legal_actions(self) -> list[int]: ...  # where chance acts: its outcomes
    def legal_actions_mask(self) -> list[int]: ...
    def apply_action(self, action: int) -> None: ...
    def is_terminal(self) -> bool: ...
    def returns(self) -> list[float]: ...
    def is_chance_node(self) -> bool: ...
    def chance_outcomes(self) -> list[tuple[int, float]]: ...
    def observation_tensor(self, player: int | None = None) -> NDArray[np.float32]: ...  # (planes, rows, columns); None: the player to move
    def scalars(self, player: int | None = None) -> NDArray[np.int8]: ...  # (S,)
    def packed_observation(self, player: int | None = None) -> NDArray[np.uint8]: ...  # (P,); None: the player to move
    def notation(self) -> str: ...  # the whole position on one line
    def information_state_string(self, player: int | None = None) -> str: ...  # all the player knows
    def resample_from_infostate(self, player: int, rng: int | Callable[[], float]) -> State:
        """A state the player cannot tell from this one, drawn uniformly; `rng` is a seed or a function giving numbers in [0, 1)."""
    def margin(self, player: int) -> float: ...  # of a terminal position, in [-1, 1]; 0 where the game has none
    def history(self) -> list[int]: ...
    def action_to_string(self, action: int) -> str: ...
    def clone(self) -> State: ...
    def __str__(self) -> str: ...

class SearchConfig:
    """The settings of azq.config.SearchConfig but its schedule, and `random_opening_plies`: all by keyword, none with a default.

    Raises ConfigError for a value that a setting may not have, TypeError where one is missing, unknown or of another type.
    """

    def __init__(self, **settings: bool | float | str) -> None: ...
    def __getattr__(self, name: str) -> Any: ...

class NodeStatistics:
    """What the search in Python knows of a node, by its E legal actions; the core's formulas in float64."""

    def __init__(self, actions: list[int]) -> None: ...
    def expand(self, logits: NDArray[np.float16], value: float) -> None: ...  # logits of all actions, value for the actor
    def update(self, edge: int, value: float) -> None: ...  # backs a value up through an edge
    def select_puct(self, c_puct: float, fpu_reduction: float, q_range: float = 2.0) -> int: ...
    def select_gumbel(self, c_visit: float, c_scale: float, q_range: float = 2.0) -> int: ...
    def select_considered(
        self, noisy_logits: NDArray[np.float64], considered: int, c_visit: float, c_scale: float, q_range: float = 2.0
    ) -> int: ...
    def improved(
        self, c_visit: float, c_scale: float, q_range: float = 2.0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """The improved policy (E,), completed Q (E,) and sigma of it (E,)."""

    def visits_of(self, edge: int) -> int: ...
    prior: NDArray[np.float64]  # (E,), this and the next a copy at each look
    @property
    def logits(self) -> NDArray[np.float64]: ...
    @property
    def q(self) -> NDArray[np.float64]: ...
    @property
    def visits(self) -> NDArray[np.int64]: ...
    @property
    def mean(self) -> float: ...
    @property
    def total(self) -> int: ...  # visits, its own evaluation included

def pack_bits(numbers: NDArray[np.float32], packed: NDArray[np.uint8]) -> int:
    """Writes numbers that are 0 or 1 as bits; returns the place of the first that is neither, or -1."""

def pack_list(numbers: list[Any], packed: NDArray[np.uint8]) -> bool:
    """The same of a list; False where it holds anything but plain numbers that are 0 or 1."""

def ascending_below(numbers: list[Any], limit: int) -> bool:
    """Whether a list holds nothing but plain whole numbers, ascending, distinct and in [0, limit)."""

class Record:
    """What self-play keeps of one game: searched plies only carry targets (a random opening ply has simulations = 0)."""

    uid: int
    actions: NDArray[np.uint16]  # (T,) those of players, and the outcomes of chance
    policies: NDArray[np.float16]  # (T, A) search's policy target; zeros where simulations is 0
    root_values: NDArray[np.float32]  # (T, V) search's value for the player to move; V > 1: entry r is that of player (mover + r) mod n
    simulations: NDArray[np.uint16]  # (T,) simulations spent, at least 1 where there is a target; 0 = no target
    weight_versions: NDArray[np.uint32]  # (T,)
    returns: NDArray[np.float32]  # (num_players,); zeros while open
    terminal: bool
    def packed(self) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes]:
        """Actions to weight_versions as they travel, little-endian; last bits (T, ceil(A / 8)) of the policies' entries, empty: all."""

class EvaluationCache:
    """So many evaluations (a power of two) by observation and weight version, shared by searches of one game in any threads.

    Without a lock: an entry that two threads write at once is forgotten. Raises ConfigError for another number of entries.
    """

    def __init__(self, game: Game, entries: int) -> None: ...
    def clear(self) -> None: ...  # forgets everything; not while a search works
    @property
    def entries(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...

class Search:
    """Many trees searched in step: one call gives the next leaves of all of them, the next takes their evaluations.

    Games with chance or hidden hands are searched over information sets (docs/3-search.md): every simulation redraws what the
    player to move cannot know. In autoplay chance acts by itself; without it a slot where chance is to act waits for `play`.

    A slot holds one game with its tree. In `autoplay` a slot whose budget is spent records its targets, plays the chosen
    action and searches on, until its game ends. Without it the slot waits: read `result`, then `play`.
    All calls with arrays release the GIL and use `num_threads` threads started at the first call (after fork).
    With a `cache` a leaf seen before under the same weight version needs no evaluator (with one leaf per step), and a leaf that
    several trees ask for at once goes into the request once; a pure evaluator gives the same search with and without.
    With `merge_symmetries` leaves are asked for in one form of all their images, whose evaluation is turned back: the search of
    an evaluator made symmetric.
    The memory of all trees is one arena, allocated once and reused by later games.
    """

    def __init__(
        self,
        game: Game,
        config: SearchConfig,
        *,
        num_slots: int,
        seed: int,
        num_threads: int = 1,
        autoplay: bool = True,
        cache: EvaluationCache | None = None,
        merge_symmetries: bool = False,
    ) -> None: ...
    def start(
        self,
        slot: int,
        uid: int,
        actions: NDArray[np.uint16],
        policies: NDArray[np.float16] | None = None,
        root_values: NDArray[np.float32] | None = None,
        simulations: NDArray[np.uint16] | None = None,
        weight_versions: NDArray[np.uint32] | None = None,
    ) -> None:
        """Puts a game into a slot after replaying its actions (with the targets recorded so far).

        Raises IllegalActionError, which leaves the slot empty, and RuntimeError while the slot's leaves are out for evaluation.
        """
    def start_at(self, slot: int, uid: int, state: State) -> None:
        """Without autoplay: puts a position into a slot whose history nobody knows; its record begins there."""
    def clear(self, slot: int) -> None: ...
    def collect(self, packed: NDArray[np.uint8], slots: NDArray[np.int32]) -> int:
        """Advances every busy tree to its next unevaluated leaf; returns L and writes packed[:L] (capacity x P) and slots[:L].

        Where packed is wider, capacity x (P + ceil(A / 8)), each row ends with bits of the actions that are legal there, little-endian.

        Trees reach terminal or solved leaves without evaluation and go on; in autoplay finished plies are played on the way.
        With a cache equal leaves are one row, that of the first slot. Capacity must be >= num_slots * leaves_per_step.
        Must alternate with `apply` (RuntimeError otherwise), except that collect may follow collect when the first returned 0.
        """
    def apply(self, logits: NDArray[np.float16], values: NDArray[np.float16], weight_version: int = 0) -> None:
        """Gives the evaluations of the last collect, in its order: logits (L, A), values (L, V); expands and backs up.

        Raises ValueError, and applies nothing, where shapes do not fit or a number is NaN.
        """
    def run_uniform(self, max_simulations: int) -> int:
        """Searches with the built-in uniform evaluator (prior logits 0, value 0) until that many simulations are done over all slots.

        Finished games are restarted. For benchmarks. Returns the simulations done.
        """
    def finished_slots(self) -> list[int]: ...  # games that ended, to be read with `record` and then cleared or started anew
    def idle_slots(self) -> list[int]: ...  # without autoplay: budget spent, `result` is ready
    def empty_slots(self) -> list[int]: ...
    def record(self, slot: int) -> Record: ...
    def broken_slots(self) -> dict[int, tuple[int, str]]: ...  # none: only the rules of a game in Python may fail (PortableSearch)
    def changed_slots(self) -> list[int]: ...  # slots whose record grew since this was last asked (open games only)
    def result(self, slot: int) -> Result:
        """Of a spent search; under PUCT also of one under way, from its first simulation on. RuntimeError where there is none."""

    def play(self, slot: int, action: int) -> None:
        """Applies an action (anyone's), keeps its subtree, and searches on if the game is not over; in autoplay chance follows."""
    def state(self, slot: int) -> State: ...
    def tree(self, slot: int) -> dict[str, NDArray[Any]]:
        """The whole tree of N nodes in the order of their creation; values and bounds are player 0's (sampled games: the actor's).

        (N,): parent, action (that led here; -1 at the root), actor, visits, raw_value, mean, lower, upper.
        (N, A): child_visits, prior (the root's with its noise), q (NaN where unvisited).
        """
    @property
    def num_slots(self) -> int: ...
    @property
    def simulations(self) -> int: ...  # done since creation
    @property
    def exact_simulations(self) -> int: ...  # of these, ended in an exact value (terminal or proven) and asked for no evaluation
    @property
    def evaluations(self) -> int: ...  # asked for since creation
    @property
    def cache_lookups(self) -> int: ...  # leaves that the evaluation cache was asked for since creation
    @property
    def cache_hits(self) -> int: ...  # of these, answered
    @property
    def merged_leaves(self) -> int: ...  # leaves since creation that shared the row of another tree's
    @property
    def plies(self) -> int: ...  # played since creation
    @property
    def memory_bytes(self) -> int: ...

class Result:
    """Root statistics of a spent search, for the player to move."""

    action: int  # what autoplay would play
    best_action: int  # without exploration: most visited (PUCT) or the last sequential-halving survivor without Gumbel noise
    policy: NDArray[np.float32]  # (A,) policy target
    visit_counts: NDArray[np.int32]  # (A,)
    q_values: NDArray[np.float32]  # (A,) NaN where unvisited
    prior_logits: NDArray[np.float32]  # (A,) -inf where illegal
    root_value: float
    proven: bool  # root_value is exact

class Uct:
    """Pure UCT (UCB1, random playouts to the end), the classical opponent: Kocsis and Szepesvari, ECML 2006."""

    def __init__(self, game: Game, *, num_simulations: int, seed: int, c_uct: float = 1.414) -> None: ...
    def best_action(self, state: State) -> int: ...
    def visit_counts(self) -> NDArray[np.int32]: ...  # (A,) of the last search

class Pimc:
    """Perfect-information Monte Carlo with random playouts, the classical opponent with hidden hands: Ginsberg, JAIR 14, 2001."""

    def __init__(self, game: Game, *, num_determinizations: int, seed: int) -> None: ...
    def best_action(self, state: State) -> int: ...
    def action_values(self) -> NDArray[np.float32]: ...  # (A,) mean results of the last search, 0 where illegal

def random_playouts(game: Game, count: int, seed: int) -> tuple[int, int]:
    """Plays `count` uniformly random games; returns (games, plies). For benchmarks."""

def random_redraws(game: Game, count: int, seed: int) -> int:
    """Redraws the hidden hands 32 times at every decision of `count` random games; returns how often. For benchmarks."""
