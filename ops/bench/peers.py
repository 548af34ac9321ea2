"""What a user would pick instead, on CPU: connect four self-play, 200 simulations, a 3x32 ResNet, one thread each.

Prints one JSON line: simulations and evaluations per CPU-second, games per CPU-minute.
Needs the extra `bench` (open_spiel, jax, pgx, mctx). Usage: peers.py {openspiel|pgx} [seconds]
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

SIMULATIONS, CHANNELS, BLOCKS, GAMES = 200, 32, 3, 256
ONE_THREAD = {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}


def openspiel(seconds: float) -> dict[str, float]:
    """OpenSpiel's Python MCTS with a torch network, one evaluation at a time, its evaluations cached within a game."""
    import numpy as np
    import pyspiel
    import torch
    from open_spiel.python.algorithms import mcts

    torch.set_num_threads(1)
    network = _torch_network()
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
                    prior, value = network(torch.tensor(state.observation_tensor()).view(1, 3, 6, 7))
                self.known[key] = (prior[0].numpy(), float(value))
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
        bot = mcts.MCTSBot(game, 1.5, SIMULATIONS, Cached(), solve=False)
        state = game.new_initial_state()
        while not state.is_terminal() and time.perf_counter() - clock < seconds:
            state.apply_action(bot.step(state))
            moves += 1
        games += state.is_terminal()
    return _figures(time.process_time() - cpu, moves * SIMULATIONS, evaluations[0], games)


def _torch_network() -> Any:
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
            self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return functional.relu(x + self.second(functional.relu(self.first(x))))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, CHANNELS, 3, padding=1)
            self.body = nn.Sequential(*[Block() for _ in range(BLOCKS)])
            self.policy = nn.Linear(CHANNELS * 42, 7)
            self.value = nn.Linear(CHANNELS * 42, 1)

        def forward(self, x: Any) -> Any:
            x = self.body(functional.relu(self.stem(x))).flatten(1)
            return torch.softmax(self.policy(x), 1), torch.tanh(self.value(x))

    return Network().eval()


def pgx(seconds: float) -> dict[str, float]:
    """pgx and mctx, everything in one compiled JAX program, 256 games at once."""
    import jax

    step, parameters, state = _pgx_step()
    key = jax.random.key(2)
    step(parameters, state, key)[1].block_until_ready()
    turns = games = 0
    clock, cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - clock < seconds:
        key, use = jax.random.split(key)
        state, done = step(parameters, state, use)
        games += int(done)
        turns += 1
    return _figures(time.process_time() - cpu, turns * GAMES * SIMULATIONS, turns * GAMES * (SIMULATIONS + 1), games)


def _pgx_step() -> Any:
    import jax
    import jax.numpy as jnp
    import mctx
    import pgx as pgx_games

    rules = pgx_games.make("connect_four")
    network, parameters = _jax_network()

    def recurrent(p: Any, key: Any, action: Any, state: Any) -> Any:
        mover = state.current_player
        state = jax.vmap(rules.step)(state, action)
        logits, value = network(p, state.observation)
        logits = jnp.where(state.legal_action_mask, logits, -1e9)
        reward = state.rewards[jnp.arange(GAMES), mover]
        discount = jnp.where(state.terminated, 0.0, -1.0)
        value = jnp.where(state.terminated, 0.0, value)
        return mctx.RecurrentFnOutput(reward=reward, discount=discount, prior_logits=logits, value=value), state

    @jax.jit
    def step(p: Any, state: Any, key: Any) -> Any:
        search_key, start_key = jax.random.split(key)
        logits, value = network(p, state.observation)
        root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
        chosen = mctx.muzero_policy(p, search_key, root, recurrent, SIMULATIONS, invalid_actions=~state.legal_action_mask)
        state = jax.vmap(rules.step)(state, chosen.action)
        over = state.terminated
        fresh = jax.vmap(rules.init)(jax.random.split(start_key, GAMES))
        mixed = jax.tree.map(lambda a, b: jnp.where(over.reshape((-1,) + (1,) * (a.ndim - 1)), a, b), fresh, state)
        return mixed, over.sum()

    return step, parameters, jax.vmap(rules.init)(jax.random.split(jax.random.key(1), GAMES))


def _jax_network() -> Any:
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.key(0), 32))
    he = jax.nn.initializers.he_normal()
    shape = (3, 3, CHANNELS, CHANNELS)
    parameters = {
        "stem": he(next(keys), (3, 3, 2, CHANNELS)),
        "blocks": [(he(next(keys), shape), he(next(keys), shape)) for _ in range(BLOCKS)],
        "policy": he(next(keys), (42 * CHANNELS, 7)),
        "value": he(next(keys), (42 * CHANNELS, 1)),
    }

    def convolve(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def network(p: Any, observation: Any) -> Any:
        x = jax.nn.relu(convolve(observation.astype(jnp.float32), p["stem"]))
        for first, second in p["blocks"]:
            x = jax.nn.relu(x + 0.1 * convolve(jax.nn.relu(convolve(x, first)), second))
        x = x.reshape(x.shape[0], -1)
        return x @ p["policy"], jnp.tanh(x @ p["value"])[:, 0]

    return network, parameters


def _figures(cpu_s: float, simulations: int, evaluations: int, games: int) -> dict[str, float]:
    return {
        "simulations_per_cpu_s": round(simulations / cpu_s, 1),
        "evaluations_per_cpu_s": round(evaluations / cpu_s, 1),
        "games_per_cpu_min": round(60 * games / cpu_s, 2),
    }


if __name__ == "__main__":
    os.environ.update(ONE_THREAD)
    peer = {"openspiel": openspiel, "pgx": pgx}[sys.argv[1]]
    print(json.dumps(peer(float(sys.argv[2]) if len(sys.argv) > 2 else 20.0)))
