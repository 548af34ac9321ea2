"""A fault may meet a process between two of its calls."""

from __future__ import annotations

from azq.parts.sim.world import Actor, World


def test_a_process_dies_at_its_third_call():
    world = World(0)
    calls: list[str] = []

    def main(actor: Actor) -> None:
        while True:
            world.send("call")
            calls.append(actor.owner)

    actor = world.spawn("caller", main)
    actor.ahead.append((3, lambda: world.kill(actor)))
    world.run(10.0)
    world.end()
    assert calls.count("caller:1") == 2
    assert calls.count("caller:2") > 2
