"""Ranks of the bare fork server: started, waited for, timed."""

import importlib
import multiprocessing
import os
import socket
import time
from multiprocessing.connection import Connection

CONTEXT = multiprocessing.get_context("forkserver")


def rank_main(order: dict, rank: int, port: int, home: Connection) -> None:
    """One rank: the environment of torchrun, the worker, its result."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(order["ranks"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(order["ranks"])}
    module, name = order["worker"]
    home.send(getattr(importlib.import_module(module), name)(*order["args"]))


def free_port() -> int:
    """A port that was free a moment ago; another process may take it before rank 0 does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(order: dict) -> dict:
    """Start the ranks, wait for their results and their end; raises EOFError if one fails."""
    start = time.perf_counter()
    port, ranks, ends = free_port(), [], []
    for rank in range(order["ranks"]):
        ours, theirs = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=rank_main, args=(order, rank, port, theirs), daemon=True)
        process.start()
        theirs.close()
        ranks.append(process)
        ends.append(ours)
    results = [end.recv() for end in ends]
    for process, end in zip(ranks, ends, strict=True):
        process.join()
        end.close()
    return {"seconds": time.perf_counter() - start, "results": results}
