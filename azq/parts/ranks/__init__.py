"""Training by several processes: membership (`rules`), rank 0 (`leader`), the others (`follower`), their exchange (`group`, `reducing`).

They train games (`games`; `workers.learner` finds `learner`) or any torch module; for that one, what is listed here is all it takes
(`plain`).
"""

from azq.config import RankSettings
from azq.parts.ranks.plain import ModuleTrainer, PlainTraining, follow, initialise
from azq.parts.ranks.rules import RankPlace, place_of

__all__ = ["ModuleTrainer", "PlainTraining", "RankPlace", "RankSettings", "follow", "initialise", "place_of"]
