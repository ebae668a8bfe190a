"""The store at which the ranks meet, kept by the kernel on loopback alone."""

import os
import socket

import torch.distributed as dist

from ddp_workbook.launcher.workarounds import no_name_lookups

LOOPBACK = "127.0.0.1"


def loopback_store() -> dist.TCPStore:
    """A TCPStore on a port that the system chose and that is ours before anybody else can take it.

    The socket is bound here and handed over: left to itself, TCPStore listens on all addresses.
    Windows cannot hand over a socket; there it listens as PyTorch does it.
    """
    if os.name == "nt":
        return dist.TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen(1024)
        port = listener.getsockname()[1]
        descriptor = listener.detach()  # the store owns it from here on, and closes it
    with no_name_lookups():
        return dist.TCPStore(
            LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=descriptor
        )
