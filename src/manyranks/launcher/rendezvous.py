"""Where the ranks meet: a store that the kernel keeps on loopback, and how ranks find it."""

import functools
import importlib
import inspect
import os
import socket
from datetime import timedelta
from typing import Any
from urllib.parse import urlparse

import psutil
import torch.distributed as dist

from manyranks.launcher.workarounds import no_name_lookups

LOOPBACK = "127.0.0.1"
LOCAL_HOSTS = {"localhost", LOOPBACK, "::1", "0.0.0.0", "::"}

NOT_THIS_RANK = (
    "{given} contradicts the launch: this process is rank {rank} of {world_size}. Leave rank and "
    "world_size out of init_process_group, or take them from the environment: "
    'int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]).'
)
OTHER_MACHINE = (
    "The ranks would meet at {host}:{port}, on another machine, but launch starts all ranks on "
    "this one. Leave out init_method, and leave MASTER_ADDR and MASTER_PORT as they are."
)
OWN_STORE = (
    "The ranks meet at the launch's own store, not at {host}:{port}: no two programs can collide "
    "there."
)


def loopback_store() -> dist.TCPStore:
    """A TCPStore on a free port of loopback, bound before any other process can take it.

    The socket is bound here and handed over, because TCPStore itself listens on all addresses. On
    Windows a socket cannot be handed over, so there the store listens as PyTorch makes it.
    """
    if os.name == "nt":
        return dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1024)
        port = listener.getsockname()[1]
        descriptor = listener.detach()  # from here on the store owns it and closes it
    with no_name_lookups():
        return dist.TCPStore(
            LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
        )


class LaunchRendezvous:
    """In a rank: gives `init_process_group` the launch's store, whatever port it was told.

    Under torchrun and `launch` all ranks are clients of a store that the launcher hosts. A worker
    that sets its own MASTER_PORT, or passes `init_method="tcp://..."`, would wait at a port where
    nobody listens (torch 2.13, under torchrun as well). Each group gets a prefix of its own in the
    store; otherwise a second group would find the first one's addresses there and call dead peers.
    Groups are counted where the store is handed out, because parts of torch, such as
    init_device_mesh, know `init_process_group` by a name of their own.
    """

    def __init__(self, environment: dict[str, str]):
        self.rank, self.world_size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        self.host, self.port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
        self.pid = os.getpid()
        self.groups = 0  # of all ranks, for which this rank has asked for the store
        self.has_called_init = False  # whether the worker has called `init_process_group`
        self.has_printed = False

    def install(self) -> None:
        """Make `init_process_group` of this process ask here first, from now on."""
        module: Any = importlib.import_module("torch.distributed.rendezvous")
        make_store, make_group = module._create_c10d_store, dist.init_process_group
        signature = inspect.signature(make_group)

        @functools.wraps(make_store)
        def create_store(
            hostname: str, port: int, rank: int, world_size: int, timeout: timedelta, *args: Any
        ) -> dist.Store:
            # Not in a child that the worker forked, and not if it unset the agent's variable.
            if os.getpid() != self.pid or not module._torchelastic_use_agent_store():
                return make_store(hostname, port, rank, world_size, timeout, *args)
            return self.store(hostname, port, rank, world_size, timeout)

        @functools.wraps(make_group)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            if os.getpid() == self.pid:
                self.has_called_init = True
                self.check(signature.bind_partial(*args, **kwargs).arguments)
            return make_group(*args, **kwargs)

        module._create_c10d_store = create_store
        dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group

    @property
    def joined(self) -> bool:
        """Whether this rank has ever joined a group, or begun to."""
        return self.has_called_init or self.groups > 0

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ValueError for arguments with which ranks never meet; `store` checks env and tcp.

        With a file or a store of its own, a worker may make a smaller world than the launch.
        """
        rank, world_size = arguments.get("rank", -1), arguments.get("world_size", -1)
        method, store = arguments.get("init_method"), arguments.get("store")
        if isinstance(store, dist.HashStore) and world_size > 1:
            raise ValueError("A HashStore lives in one process: no other rank can see it.")
        if isinstance(method, str) and method.startswith("file://"):
            folder = os.path.dirname(urlparse(method).path)
            if not os.path.isdir(folder):
                raise ValueError(f"init_method={method}: there is no folder {folder}.")
        elif store is None:
            return
        if world_size > self.world_size or (world_size == self.world_size and rank != self.rank):
            raise ValueError(self.contradiction(rank, world_size))

    def contradiction(self, rank: int, world_size: int) -> str:
        """What is wrong with these numbers, and what to do."""
        wrong = [f"rank={rank}"] if rank != self.rank else []
        if world_size != self.world_size:
            wrong.append(f"world_size={world_size}")
        return NOT_THIS_RANK.format(
            given=" and ".join(wrong), rank=self.rank, world_size=self.world_size
        )

    def store(
        self, host: str, port: int, rank: int, world_size: int, timeout: timedelta
    ) -> dist.Store:
        """The launch's store; ValueError for another machine or for numbers that contradict it."""
        if (rank, world_size) != (self.rank, self.world_size):
            raise ValueError(self.contradiction(rank, world_size))
        if (host, port) != (self.host, self.port):
            if not is_this_machine(host):
                raise ValueError(OTHER_MACHINE.format(host=host, port=port))
            if self.rank == 0 and not self.has_printed:
                self.has_printed = True
                print(OWN_STORE.format(host=host, port=port))
        with no_name_lookups():
            store = dist.TCPStore(self.host, self.port, world_size, False, timeout)
        self.groups += 1
        return dist.PrefixStore(f"group {self.groups}", store)


def free_port() -> int:
    """A port of loopback where nobody listens now; another program may take it the next moment."""
    with socket.create_server((LOOPBACK, 0)) as server:
        return server.getsockname()[1]


def is_this_machine(host: str) -> bool:
    """True for loopback and for this machine's name and addresses; never asks a name server."""
    if host in LOCAL_HOSTS or host.startswith("127.") or host == socket.gethostname():
        return True
    return any(a.address == host for card in psutil.net_if_addrs().values() for a in card)
