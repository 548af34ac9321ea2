"""Several ranks of `torch.distributed` in processes of one test, over loopback and gloo."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from azq.parts.ranks.group import RankGroup, listen_towards

HOST = "127.0.0.1"
CPU = torch.device("cpu")


def in_ranks(size: int, body: Callable[[RankGroup], Any], *, seconds: float = 60.0, timeout_s: float = 20.0) -> list[Any]:
    """What `body` returns in each of `size` ranks, by rank; fails with the first traceback of one that raised.

    Forked, so that ranks need not import torch again; each computes in one thread.
    """
    importlib.import_module("torch._dynamo")  # 1.2 s that an optimiser would load again in every rank
    context = multiprocessing.get_context("fork")
    doors = [context.Pipe() for _ in range(size)]
    folder = tempfile.mkdtemp(prefix="azq-ranks-")
    ranks = [
        context.Process(target=_rank, args=(place, size, body, doors[place][1], Path(folder), timeout_s), daemon=True)
        for place in range(size)
    ]
    for rank in ranks:
        rank.start()
    try:
        results = []
        for place, (door, _) in enumerate(doors):
            assert door.poll(seconds), f"rank {place} said nothing for {seconds} s"
            result, error = door.recv()
            assert not error, f"rank {place}:\n{error}"
            results.append(result)
        return results
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
        shutil.rmtree(folder)


def _rank(place: int, size: int, body: Callable[[RankGroup], Any], door: Connection, folder: Path, timeout_s: float) -> None:
    torch.set_num_threads(1)
    try:
        listen_towards(HOST)
        group = RankGroup(FileStore(str(folder / "store"), size), 1, place, size, CPU, timeout_s)
        result = body(group)
        group.close()
        door.send((result, ""))
    except BaseException:
        door.send((None, traceback.format_exc()))
    os._exit(0)  # nothing of the test process that was forked is to run again
