"""Some seeds hold a call now and then until all others have gone on; a fault may meet a process between two of its calls."""

from __future__ import annotations

import pytest

from azq.parts.sim.world import Actor, World


def caller(world: World) -> tuple[Actor, list[float]]:
    """A process that calls all the time, and how long its calls took."""
    seconds: list[float] = []

    def main(_: Actor) -> None:
        while True:
            began_s = world.monotonic()
            world.send("call")
            seconds.append(world.monotonic() - began_s)

    return world.spawn("caller", main), seconds


@pytest.mark.parametrize(("seed", "held"), [(0, False), (1, False), (2, True), (3, True)])
def test_at_change_points_a_call_comes_behind_all_others(seed, held):
    world = World(seed)
    _, seconds = caller(world)
    while len(seconds) < 3000:
        world.run(world.monotonic() + 1.0)
    assert (max(seconds) > 5.0) is held
    world.calm()
    seconds.clear()
    world.run(world.monotonic() + 30.0)
    assert max(seconds) < 5.0
    world.end()


def test_a_process_dies_at_its_third_call():
    world = World(0)
    actor, seconds = caller(world)
    actor.ahead.append((3, lambda: world.kill(actor)))
    world.at(9.0, world.end)
    while actor.life < 2:
        before = len(seconds)
        world.run(world.monotonic() + 0.001)
    assert before == 2
