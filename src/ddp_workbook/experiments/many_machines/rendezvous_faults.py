"""Nodes that meet as torchruns do, or do not: played by ranks of one machine, and recorded.

A torchrun that starts takes seconds, most of them for imports. Here the first rank of each node
calls what torchrun calls to find the other nodes, so a meeting takes little more than one second.
Then all ranks meet in `init_process_group`. What needs nodes of its own was recorded.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import textwrap
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd
import torch.distributed as dist

import ddp_workbook
from ddp_workbook.experiments.many_machines.launchers import DATA_FOLDER
from manyranks import figures
from manyranks.figures.palette import INK
from manyranks.launcher.rendezvous import LOOPBACK, free_port, loopback_store

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous.api import RendezvousHandler

JOIN_TIMEOUT_S = (
    2.5  # seconds until a node gives up one that will not come, in place of ten minutes
)
READ_TIMEOUT_S = 1  # seconds until it gives up the store, in place of a minute
LONG_TIMEOUT_S = 60  # seconds, both, where all come: a busy machine may take long
DELAY_S = 0.5  # seconds
NOTHING, SLOW, ABSENT = "nothing", "it is late", "it never comes"
NAME, PORT, JOB = "a name that nobody knows", "another port", "another --rdzv-id"
INTERFACE = "an interface that does not exist"
ALL_COME = (NOTHING, SLOW, INTERFACE)
ADVICE = {
    NOTHING: "",
    SLOW: "nothing: the others wait for it, ten minutes unless you say otherwise",
    ABSENT: "compare the lines of all nodes: --nnodes, --rdzv-endpoint and --rdzv-id must be equal",
    NAME: "take the address, or a name that getent hosts knows, on every node",
    PORT: "the same --rdzv-endpoint on all nodes",
    JOB: "the same --rdzv-id on all nodes",
    INTERFACE: "ip -brief address lists the interfaces; leave GLOO_SOCKET_IFNAME out unless gloo "
    "picks a wrong one",
}
FIRST, GAVE_UP = "node1", "gave up"
NO_TORCHRUN, NO_RANK = "torchrun was not started", "its torchrun gave up, and has started no rank"
ERROR_PATTERNS = (  # the first of these that is found says most
    r"gai error: [^)]*",
    r"Unable to find (?:addr|interf)[^\n]*",
    r"timed out after \d+ms",
)


class JoinTrace(NamedTuple):
    """What one process saw; times in seconds of a clock that all processes share."""

    host: str
    arrival: float
    assignment: float  # when its node knew its ranks, or gave up
    meeting: float  # when the group was there, or it gave up
    rank: int | None  # None: it never got one
    error: str


def play_hosts() -> ddp_workbook.Play:
    """Nodes that look for each other, with controls for how many, and for what breaks."""
    return ddp_workbook.play(
        join,
        terminals_plot,
        ranks=lambda hosts, each, **_: hosts * each,
        stills=[{"fault": breaks} for breaks in (NOTHING, SLOW, NAME, PORT, INTERFACE)],
        hosts=ddp_workbook.slider("nodes", (1, 2, 3), 2),
        each=ddp_workbook.slider("ranks a node", (1, 2), 2),
        fault=ddp_workbook.choice("what is wrong with the last node", tuple(ADVICE), ABSENT),
    )


# In a process: rank r of `launch` plays a rank of node r // each


def join(hosts: int, each: int, fault: str) -> JoinTrace:
    """Find the other nodes, as torchrun does, then join the group; what came of it."""
    logging.disable(logging.CRITICAL)  # the error is in what is returned
    store, place, _ = next(dist.rendezvous("env://"))
    name, local = f"node{place // each + 1}", place % each
    wrong = fault if place // each == hosts - 1 else NOTHING
    arrival = start_together(store, hosts * each)
    if wrong == ABSENT:
        return JoinTrace(name, arrival, arrival, arrival, None, NO_TORCHRUN)
    if wrong == SLOW:
        time.sleep(DELAY_S)
        arrival = time.monotonic()
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 2)  # torch prints there what its exceptions leave out
        assignment = rank = None
        try:
            join_within = LONG_TIMEOUT_S if fault in ALL_COME else JOIN_TIMEOUT_S
            rank = host_number(store, name, local, hosts, wrong, join_within) * each + local
            assignment = time.monotonic()
            join_group(
                store,
                rank,
                hosts * each,
                wrong,
                JOIN_TIMEOUT_S if fault == INTERFACE else LONG_TIMEOUT_S,
            )
            error = ""
        except Exception as failure:
            if not local:
                store.set(f"number of {name}", GAVE_UP)
            log.seek(0)
            error = error_line(failure, log.read().decode(errors="replace"))
    end = time.monotonic()
    return JoinTrace(name, arrival, assignment or end, end, rank, error)


def join_group(store: dist.Store, rank: int, world_size: int, wrong: str, within: float) -> None:
    """What the ranks do once they are started."""
    if wrong == INTERFACE:
        os.environ["GLOO_SOCKET_IFNAME"] = "eth9"
    group, limit = dist.PrefixStore("group", store), timedelta(seconds=within)
    dist.init_process_group("gloo", store=group, rank=rank, world_size=world_size, timeout=limit)


def start_together(store: dist.Store, world_size: int) -> float:
    """Wait until all processes are here; the time."""
    if store.add("here", 1) == world_size:
        store.set("all here", "")
    store.wait(["all here"])
    return time.monotonic()


def host_number(
    store: dist.Store, name: str, local: int, hosts: int, wrong: str, join_within: float
) -> int:
    """The node's GROUP_RANK: its first process asks the other nodes, and tells the others here."""
    if local:
        number = store.get(f"number of {name}").decode()
        if number == GAVE_UP:
            raise RuntimeError(NO_RANK)
        return int(number)
    if name == FIRST:  # the node that the endpoint names: it opens the store
        meeting = loopback_store()
        store.set("port", str(meeting.port))
    try:
        handler = handler_of(name, int(store.get("port")), hosts, wrong, join_within)
        number = str(handler.next_rendezvous().rank)
    finally:
        store.add("hosts that are through", 1)
    store.set(f"number of {name}", number)
    while name == FIRST and store.add("hosts that are through", 0) < hosts:
        time.sleep(0.02)  # its store must stay until all have read
    return int(number)


def handler_of(
    name: str, port: int, hosts: int, wrong: str, join_within: float
) -> RendezvousHandler:
    """torchrun's own, for `--rdzv-endpoint 127.0.0.1:PORT --rdzv-id run1 --nnodes HOSTS`."""
    from torch.distributed.elastic.rendezvous import RendezvousParameters
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
    from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

    host = "no-such-host.invalid" if wrong == NAME else LOOPBACK
    parameters = RendezvousParameters(
        backend="c10d",
        endpoint=f"{host}:{free_port() if wrong == PORT else port}",
        run_id="run2" if wrong == JOB else "run1",
        min_nodes=hosts,
        max_nodes=hosts,
        local_addr=name,
        is_host="0",
        join_timeout=join_within,
        read_timeout=min(READ_TIMEOUT_S if wrong == PORT else LONG_TIMEOUT_S, join_within),
        last_call_timeout=1,
    )
    backend, store = create_backend(parameters)
    handler = create_handler(store, backend, parameters)
    # The store for the ranks, which torchrun opens on all of the node's addresses.
    handler._create_tcp_store_server = lambda *_: loopback_store()
    return handler


def error_line(error: Exception, log: str) -> str:
    """The error's class, and the words that tell what is wrong, which torch hides in its log."""
    text = "\n".join(map(str, (error, error.__cause__ or "", log)))
    cause = next((match[0] for words in ERROR_PATTERNS if (match := re.search(words, text))), "")
    words = cause or str(error).partition("\n")[0]
    return f"{type(error).__name__}: {words}".rstrip(": ")


# The picture


TERMINAL_FONT, CHARACTER_IN = 8.5, 0.0724  # points of a monospaced font, inches of a character
LINE_IN, EDGE_IN = 0.19, 0.12


@figures.house_style
def terminals_plot(
    of_ranks: Sequence[JoinTrace], hosts: int, each: int, fault: str, **_: object
) -> figures.Picture:
    """A terminal for each node, side by side: what was typed there, and what came of it."""
    nodes = [of_ranks[place : place + each] for place in range(0, len(of_ranks), each)]
    wide = (figures.WIDTH - EDGE_IN * (hosts - 1)) / hosts
    faults = [NOTHING] * (hosts - 1) + [fault]
    texts = [
        terminal_lines(traces, hosts, each, wrong)
        for traces, wrong in zip(nodes, faults, strict=True)
    ]
    columns = int((wide - 2 * EDGE_IN) / CHARACTER_IN)
    wrapped = [
        [
            (line, told)
            for text, told in lines
            for line in textwrap.wrap(text, columns, break_on_hyphens=False) or [""]
        ]
        for lines in texts
    ]
    advice = textwrap.wrap(f"What to do: {ADVICE[fault]}.", 100) if ADVICE[fault] else []
    tall = 0.34 + LINE_IN * max(map(len, wrapped)) + EDGE_IN
    axes = figures.sheet(figures.WIDTH, tall + 0.1 + 0.22 * len(advice))
    for place, (traces, lines) in enumerate(zip(nodes, wrapped, strict=True)):
        left = place * (wide + EDGE_IN)
        frame = {"facecolor": "white", "edgecolor": INK, "linewidth": 1.0}
        figures.box(axes, (left + 0.02, 0.02), (wide - 0.04, tall), frame=frame)
        axes.text(left + EDGE_IN, 0.2, traces[0].host, va="center", weight="bold", fontsize=10)
        for number, (line, told) in enumerate(lines):
            look = {"family": "DejaVu Sans Mono", "fontsize": TERMINAL_FONT, "va": "center"}
            top = 0.34 + LINE_IN * (number + 0.5)
            axes.text(left + EDGE_IN, top, line, weight="bold" if told else "normal", **look)
    for number, line in enumerate(advice):
        axes.text(0.02, tall + 0.2 + 0.22 * number, line, va="center", fontsize=10)
    says = [
        f"{traces[0].host}: " + "; ".join(text.strip() for text, told in lines if told)
        for traces, lines in zip(nodes, texts, strict=True)
    ]
    words = f"A terminal for each node. {'. '.join(says)}. {' '.join(advice)}"
    return figures.Picture(axes.figure, words)


def terminal_lines(
    traces: Sequence[JoinTrace], hosts: int, each: int, wrong: str
) -> list[tuple[str, bool]]:
    """The lines of a node's terminal, and of each whether it says what came of the command."""
    if traces[0].error == NO_TORCHRUN:
        return [("$", False), ("", False), ("(torchrun was not started)", True)]
    variable = "GLOO_SOCKET_IFNAME=eth9 " if wrong == INTERFACE else ""
    endpoint = {NAME: "no-such-host.invalid:29500", PORT: f"{FIRST}:29501"}.get(wrong)
    command = [
        f"$ {variable}torchrun --nnodes {hosts} --nproc-per-node {each}",
        f"  --rdzv-id {'run2' if wrong == JOB else 'run1'}",
        f"  --rdzv-endpoint {endpoint or FIRST + ':29500'} …",
        "",
    ]
    said = []
    for trace in traces:
        waited = f"{trace.meeting - trace.arrival:.1f} s"
        if not trace.error:
            said.append(f"rank {trace.rank}: all ranks have met after {waited}")
        elif NO_RANK not in trace.error:
            said.append(f"after {waited}: {trace.error}")
    return [(line, False) for line in command] + [(line, True) for line in dict.fromkeys(said)]


# Faults that need nodes of their own: recorded, with what to do


# Of the recorded ones: those that a laptop cannot show, and what to do about them.
FAULT_ADVICE = {
    "wrong_interface": "GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME: the one that the others can reach",
    "own_name_is_loopback": "the same variable, or the node's real address in its /etc/hosts",
    "head_does_not_know_itself": "the endpoint is what hostname prints there, if the others can "
    "resolve it; or --rdzv-conf is_host=1 there, is_host=0 on the others",
    "head_never_comes": "start the node that --rdzv-endpoint names; look for a firewall",
    "port_taken_in_silence": "another port, found free when the job starts",
    "standalone_on_both": "--nnodes and --rdzv-endpoint in place of --standalone",
    "host_cut_off": "nothing: start again from what was saved; keep the group's timeout short",
    "mixed_versions": "one environment for all nodes: that it works here is luck",
}
NO_ERROR = {
    "port_taken_in_silence": "none: both nodes wait",
    "standalone_on_both": "none: each rank says that it is rank 0 of 1",
    "mixed_versions": "none: {torch}",
}


def read_faults() -> pd.DataFrame:
    """Faults that need nodes of their own, as tests/clusters/record_messages.py recorded them."""
    by_name = {fault["name"]: fault for fault in records()}
    return pd.DataFrame(
        {
            "what is wrong": by_name[name]["what"],
            "message": NO_ERROR.get(name, key_sentence(by_name[name])).format(**by_name[name]),
            "what to do": advice,
        }
        for name, advice in FAULT_ADVICE.items()
    )


def records() -> list[dict]:
    """All recorded faults: what was typed, said and how long it took, by node."""
    return json.loads((DATA_FOLDER / "messages.json").read_text(encoding="utf-8"))


def key_sentence(fault: dict) -> str:
    """From the words that tell the fault to the end of their line, without a random port."""
    text = "\n".join(fault["message"].values())
    sentence = fault["key"] and text[text.index(fault["key"]) :].partition("\n")[0]
    return re.sub(r"\]:\d+\$\d+", "]", sentence)  # gloo writes port$attempt
