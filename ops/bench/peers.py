"""What a user would pick instead: connect-four self-play with a ResNet; on CPU with one thread each, on a GPU in bfloat16.

Prints one JSON line: simulations and evaluations per second and per CPU-second, games per CPU-minute.
Needs the extra `bench` (open_spiel, jax, pgx, mctx).
Usage: peers.py {openspiel|pgx} [seconds] [--num-simulations N] [--blocks N] [--channels N] [--games N] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from typing import Any

ONE_THREAD = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


@dataclass(frozen=True, slots=True)
class Setting:
    """How the peer plays."""

    simulations: int = 200
    blocks: int = 3
    channels: int = 32
    games: int = 256  # at once, where the peer can
    on_gpu: bool = False


def openspiel(seconds: float, setting: Setting) -> dict[str, float]:
    """OpenSpiel's Python MCTS with a torch network, one evaluation at a time, its evaluations cached within a game."""
    import numpy as np
    import pyspiel
    import torch
    from open_spiel.python.algorithms import mcts

    torch.set_num_threads(1)
    device = "cuda" if setting.on_gpu else "cpu"
    network = _torch_network(setting).to(device)
    game = pyspiel.load_game("connect_four")
    evaluations = [0]

    class Cached(mcts.Evaluator):  # type: ignore[misc]
        def __init__(self) -> None:
            self.known: dict[str, Any] = {}

        def _infer(self, state: Any) -> Any:
            key = state.history_str()
            if key not in self.known:
                evaluations[0] += 1
                with torch.inference_mode():
                    prior, value = network(torch.tensor(state.observation_tensor(), device=device).view(1, 3, 6, 7))
                self.known[key] = (prior[0].cpu().numpy(), float(value))
            return self.known[key]

        def evaluate(self, state: Any) -> Any:
            value = self._infer(state)[1]
            return np.array([value, -value])

        def prior(self, state: Any) -> Any:
            prior = self._infer(state)[0]
            return [(action, prior[action]) for action in state.legal_actions()]

    moves = games = 0
    clock, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        bot = mcts.MCTSBot(game, 1.5, setting.simulations, Cached(), solve=False)
        state = game.new_initial_state()
        while not state.is_terminal() and time.perf_counter() - clock < seconds:
            state.apply_action(bot.step(state))
            moves += 1
        games += state.is_terminal()
    return _figures(time.perf_counter() - clock, time.process_time() - cpu, moves * setting.simulations, evaluations[0], games)


def _torch_network(setting: Setting) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    channels = setting.channels

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, channels, 3, padding=1)
            self.second = nn.Conv2d(channels, channels, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return functional.relu(x + self.second(functional.relu(self.first(x))))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, channels, 3, padding=1)
            self.body = nn.Sequential(*[Block() for _ in range(setting.blocks)])
            self.policy = nn.Linear(channels * 42, 7)
            self.value = nn.Linear(channels * 42, 1)

        def forward(self, x: Any) -> Any:
            x = self.body(functional.relu(self.stem(x))).flatten(1)
            return torch.softmax(self.policy(x), 1), torch.tanh(self.value(x))

    return Network().eval()


def pgx(seconds: float, setting: Setting) -> dict[str, float]:
    """pgx and mctx, everything in one compiled JAX program, all games at once."""
    import jax

    if setting.on_gpu and jax.default_backend() != "gpu":
        raise SystemExit("jax sees no GPU; it would be measured on the CPU")
    step, parameters, state = _pgx_step(setting)
    key = jax.random.key(2)
    step(parameters, state, key)[1].block_until_ready()
    turns = games = 0
    clock, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        key, use = jax.random.split(key)
        state, done = step(parameters, state, use)
        games += int(done)
        turns += 1
    plies = turns * setting.games
    wall_s = time.perf_counter() - clock
    return _figures(wall_s, time.process_time() - cpu, plies * setting.simulations, plies * (setting.simulations + 1), games)


def _pgx_step(setting: Setting) -> Any:
    import jax
    import jax.numpy as jnp
    import mctx
    import pgx as pgx_games

    rules = pgx_games.make("connect_four")
    network, parameters = _jax_network(setting)
    games = setting.games

    def recurrent(p: Any, key: Any, action: Any, state: Any) -> Any:
        mover = state.current_player
        state = jax.vmap(rules.step)(state, action)
        logits, value = network(p, state.observation)
        logits = jnp.where(state.legal_action_mask, logits, -1e9)
        reward = state.rewards[jnp.arange(games), mover]
        discount = jnp.where(state.terminated, 0.0, -1.0)
        value = jnp.where(state.terminated, 0.0, value)
        return mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value), state

    def step(p: Any, state: Any, key: Any) -> Any:
        search_key, start_key = jax.random.split(key)
        logits, value = network(p, state.observation)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        chosen = mctx.muzero_policy(p, search_key, root, recurrent, setting.simulations, invalid_actions=~state.legal_action_mask)
        state = jax.vmap(rules.step)(state, chosen.action)
        over = state.terminated
        fresh = jax.vmap(rules.init)(jax.random.split(start_key, games))
        mixed = jax.tree.map(lambda a, b: jnp.where(over.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), fresh, state)
        return mixed, over.sum()

    return jax.jit(step), parameters, jax.vmap(rules.init)(jax.random.split(jax.random.key(1), games))


def _jax_network(setting: Setting) -> Any:
    import jax
    import jax.numpy as jnp

    channels, kind = setting.channels, jnp.bfloat16 if setting.on_gpu else jnp.float32
    keys = iter(jax.random.split(jax.random.key(0), 2 * setting.blocks + 3))
    he = jax.nn.initializers.he_normal()
    shape = (3, 3, channels, channels)
    parameters = {
        "stem": he(next(keys), (3, 3, 2, channels)),
        "blocks": [(he(next(keys), shape), he(next(keys), shape)) for _ in range(setting.blocks)],
        "policy": he(next(keys), (42 * channels, 7)),
        "value": he(next(keys), (42 * channels, 1)),
    }

    def convolve(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def network(p: Any, observation: Any) -> Any:
        x = jax.nn.relu(convolve(observation.astype(kind), p["stem"]))
        for first, second in p["blocks"]:
            x = jax.nn.relu(x + 0.1 * convolve(jax.nn.relu(convolve(x, first)), second))
        x = x.reshape(x.shape[0], -1)
        logits, value = x @ p["policy"], jnp.tanh(x @ p["value"])[:, 0]
        return logits.astype(jnp.float32), value.astype(jnp.float32)

    return network, jax.tree.map(lambda weights: weights.astype(kind), parameters)


def _figures(wall_s: float, cpu_s: float, simulations: int, evaluations: int, games: int) -> dict[str, float]:
    return {
        "simulations_per_s": round(simulations / wall_s, 1),
        "evaluations_per_s": round(evaluations / wall_s, 1),
        "games_per_s": round(games / wall_s, 3),
        "simulations_per_cpu_s": round(simulations / cpu_s, 1),
        "evaluations_per_cpu_s": round(evaluations / cpu_s, 1),
        "games_per_cpu_min": round(60 * games / cpu_s, 2),
    }


def main() -> None:
    """Reads the arguments, measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=("openspiel", "pgx"))
    parser.add_argument("seconds", type=float, nargs="?", default=20.0)
    parser.add_argument("--num-simulations", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--channels", type=int, default=32)
    parser.add_argument("--games", type=int, default=256)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    given = parser.parse_args()
    setting = Setting(given.num_simulations, given.blocks, given.channels, given.games, given.device == "cuda")
    # Set before the libraries load: one thread on a CPU; on a GPU no grabbing of all its memory, which others need after it.
    os.environ.update({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if setting.on_gpu else {**ONE_THREAD, "JAX_PLATFORMS": "cpu"})
    print(json.dumps({"openspiel": openspiel, "pgx": pgx}[given.peer](given.seconds, setting)))


if __name__ == "__main__":
    main()
