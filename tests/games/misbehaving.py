"""Games that each break one thing; `tests/cases/SOURCES.md` says whose reports they stand for."""

from __future__ import annotations

import ctypes
import os
import random
import threading
import warnings


class Sound:
    """Six moves, of which each adds a stone; whoever placed fewer of the highest stones loses."""

    plies = 6

    def __init__(self) -> None:
        self.moves: list[int] = []

    def num_players(self) -> int:
        return 2

    def num_distinct_actions(self) -> int:
        return 3

    def current_player(self) -> int:
        return len(self.moves) % 2

    def legal_actions(self) -> list[int]:
        return [0, 1, 2]

    def apply_action(self, action: int) -> None:
        self.moves.append(action)

    def is_terminal(self) -> bool:
        return len(self.moves) >= self.plies

    def returns(self) -> list[float]:
        lead = sum(self.moves[::2]) - sum(self.moves[1::2])
        return [0.0, 0.0] if lead == 0 else [1.0, -1.0] if lead > 0 else [-1.0, 1.0]

    def observation_tensor(self, player: int) -> list[int]:
        return [int(ply < len(self.moves)) for ply in range(8)]

    def __str__(self) -> str:
        return str(self.moves)


class ExitsHard(Sound):
    def apply_action(self, action: int) -> None:
        if len(self.moves) == 3:
            os._exit(0)
        super().apply_action(action)


class Faults(Sound):
    def apply_action(self, action: int) -> None:
        if len(self.moves) == 3:
            ctypes.string_at(0)
        super().apply_action(action)


class Loops(Sound):
    def is_terminal(self) -> bool:
        while len(self.moves) == 3:
            pass
        return super().is_terminal()


class Noisy(Sound):
    """Prints, warns, leaves a thread and a shared list behind, asks the global generator; the rules are as good as those of `Sound`."""

    log: list[str] = []  # noqa: RUF012

    def apply_action(self, action: int) -> None:
        print("move", action)
        if not self.log:
            self.log.append("begun")
            threading.Thread(target=threading.Event().wait, name="clock").start()
            warnings.warn("deprecated rule", stacklevel=1)
            random.random()
        super().apply_action(action)


class Prints(Sound):
    def apply_action(self, action: int) -> None:
        print("move", action)
        super().apply_action(action)


class Asks(Sound):
    def apply_action(self, action: int) -> None:
        super().apply_action(int(input("move? ")))


DRAWN = [random.randint(0, 1) for _ in range(64)]


class DrawnAtImport(Sound):
    def observation_tensor(self, player: int) -> list[int]:
        return [*super().observation_tensor(player), *DRAWN]


class OrderOfSets(Sound):
    def observation_tensor(self, player: int) -> list[int]:
        return [*super().observation_tensor(player), *(ord(letter) & 1 for letter in {*"abcdefghijklmnop"})]


class DrawnAtStart(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.board = [random.randint(0, 1) for _ in range(64)]

    def observation_tensor(self, player: int) -> list[int]:
        return self.board


class Over(Sound):
    def is_terminal(self) -> bool:
        return True


class Endless(Sound):
    def max_game_length(self) -> int:
        return 50

    def is_terminal(self) -> bool:
        return False


class NeverDeclared(Endless):
    def max_game_length(self) -> int:
        return 10**9


class SymmetryOfLooks(Sound):
    def symmetries(self) -> list[tuple[list[int], list[int]]]:
        return [([2, 1, 0], list(range(8)))]

    def returns(self) -> list[float]:
        return [1.0, -1.0] if self.moves[0] == 0 else [-1.0, 1.0]


class ForgetfulClone(Sound):
    def clone(self) -> ForgetfulClone:
        twin = type(self)()
        twin.moves = [0] * len(self.moves)
        return twin


class SharedList(Sound):
    def clone(self) -> SharedList:
        twin = type(self)()
        twin.moves = self.moves
        return twin


class Long(Sound):
    calls = 0

    def __init__(self, plies: int = 1000) -> None:
        super().__init__()
        self.plies, self.moves_made = plies, 0

    def max_game_length(self) -> int:
        return self.plies

    def current_player(self) -> int:
        return self.moves_made % 2

    def apply_action(self, action: int) -> None:
        Long.calls += 1
        self.moves_made += 1

    def is_terminal(self) -> bool:
        return self.moves_made >= self.plies

    def returns(self) -> list[float]:
        return [0.0, 0.0]

    def observation_tensor(self, player: int) -> list[int]:
        return [self.moves_made % 2]

    def clone(self) -> Long:
        twin = type(self)(self.plies)
        twin.moves_made = self.moves_made
        return twin
