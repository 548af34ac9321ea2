"""A power cut keeps what was synced and may take the rest; a disk that is full takes a part; a killed process writes nothing more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from azq.files import sync_folder
from azq.parts.sim.disk import SimulatedDisk
from azq.parts.sim.world import Actor, World
from azq.replay import framing


def played(seed: int, folder: Path, writes: Callable[[World, SimulatedDisk], None]) -> SimulatedDisk:
    """A disk after one process did something to it once."""
    world = World(seed)
    disk = SimulatedDisk(world, folder)

    def main(_: Actor) -> None:
        writes(world, disk)
        world.pause(1000.0)

    actor = world.spawn("writer", main)
    with disk.installed():
        world.run(5.0)
        world.kill(actor)
        world.run(5.0)
        world.end()
    return disk


def _write(folder: Path, synced: bool) -> Callable[[World, SimulatedDisk], None]:
    def writes(_: World, __: SimulatedDisk) -> None:
        file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b"first")
        os.fsync(file)
        sync_folder(folder)
        os.write(file, b"second")
        if synced:
            os.fsync(file)

    return writes


@pytest.mark.parametrize("synced", [True, False])
def test_a_power_cut_leaves_what_was_synced(tmp_path, synced):
    left = set()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        played(seed, folder, _write(folder, synced)).power_cut()
        left.add((folder / "log").read_bytes())
    assert all(data.startswith(b"first") for data in left)
    assert (left == {b"firstsecond"}) is synced


def _make(path: Path) -> Callable[[World, SimulatedDisk], None]:
    return lambda _, __: os.close(os.open(path, os.O_WRONLY | os.O_CREAT))


def test_a_name_that_no_sync_of_the_folder_followed_may_be_gone(tmp_path):
    there = set()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        played(seed, folder, _make(folder / "new")).power_cut()
        there.add((folder / "new").exists())
    assert there == {True, False}


def test_a_full_disk_takes_a_part_or_nothing(tmp_path):
    def writes(_: World, disk: SimulatedDisk) -> None:
        file = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
        disk.full = True
        with pytest.raises(OSError, match="No space left"):
            os.write(file, b"x")

    assert played(1, tmp_path, writes).full
    assert (tmp_path / "log").read_bytes() == b""


def test_damage_lies_before_a_durable_mark_until_it_is_repaired(tmp_path):
    whole = framing.header("g") + framing.records(b"game")
    whole += framing.mark(len(whole))

    def writes(_: World, __: SimulatedDisk) -> None:
        file = os.open(tmp_path / "000001.seg", os.O_WRONLY | os.O_CREAT)
        os.write(file, whole)
        os.fsync(file)
        os.write(file, b"SYNC")

    disk = played(1, tmp_path, writes)
    disk.damage(0.9)
    held = (tmp_path / "000001.seg").read_bytes()
    assert framing.was_synced(held, framing.parse(held, framing.read_header(held, "").size).end, marked=True)
    disk.repair()
    assert (tmp_path / "000001.seg").read_bytes() == whole + b"SYNC"
