"""Bytes that the busiest of several processes sends and receives for one step: a parameter server's, and those of all-reduce by gloo.

`.venv/bin/python ops/bench/parameter_server.py 4` prints both for four trainers, counted by the kernel on each process's sockets.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from azq.drill.faults.ranks import connections

NUMBERS = 1_000_000
STEPS = 20
_TCP_INFO_BYTES = 232
_BYTES_ACKED = 120  # where `struct tcp_info` has them, behind them those received


def crossed() -> tuple[int, int]:
    """Bytes that this process's connections have sent, and received."""
    sent = received = 0
    for one in connections(os.getpid()):
        with closing(one):
            told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
            acked, came = struct.unpack_from("<QQ", told, _BYTES_ACKED)
            sent, received = sent + acked, received + came
    return sent, received


def all_reduce(gradients: torch.Tensor, rank: int, size: int) -> None:
    dist.all_reduce(gradients)


def through_server(gradients: torch.Tensor, rank: int, size: int) -> None:
    """Rank 0, which trains as well, takes in every other's gradients and sends each the sum."""
    if rank:
        dist.send(gradients, 0)
        dist.recv(gradients, 0)
        return
    theirs = torch.empty_like(gradients)
    for other in range(1, size):
        dist.recv(theirs, other)
        gradients += theirs
    for other in range(1, size):
        dist.send(gradients, other)


WAYS: dict[str, Callable[[torch.Tensor, int, int], None]] = {"all_reduce": all_reduce, "parameter_server": through_server}


def train(rank: int, size: int, way: str, store: str, answers: Any) -> None:
    dist.init_process_group("gloo", store=FileStore(store, size), rank=rank, world_size=size)
    gradients = torch.ones(NUMBERS)
    WAYS[way](gradients, rank, size)  # connects
    dist.barrier()
    before = crossed()
    for _ in range(STEPS):
        WAYS[way](gradients.fill_(1.0), rank, size)
        if gradients[0] != size:
            raise SystemExit(f"rank {rank} has another sum than that of {size} ranks")
    dist.barrier()
    answers.put([(now - then) / STEPS for now, then in zip(crossed(), before, strict=True)])
    dist.destroy_process_group()


def busiest(way: str, size: int) -> float:
    """Bytes a step, in and out, of the process with the most; as a multiple of the gradients' own.

    Raises `SystemExit` where not all that was sent was received: then some connection was not counted.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers = context.Queue()
        ranks = [context.Process(target=train, args=(rank, size, way, f"{folder}/store", answers)) for rank in range(size)]
        for one in ranks:
            one.start()
        found: list[list[float]] = [answers.get(timeout=120) for _ in ranks]
        for one in ranks:
            one.join()
    sent, received = (sum(column) for column in zip(*found, strict=True))
    if abs(sent - received) > 0.01 * sent:
        raise SystemExit(f"{sent:.0f} bytes were sent and {received:.0f} received: not all connections were counted; run it again")
    return round(max(sum(one) for one in found) / NUMBERS / 4, 2)


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for trainers in map(int, sys.argv[1:] or ["4"]):
        print(json.dumps({"trainers": trainers, **{way: busiest(way, trainers) for way in WAYS}}))
