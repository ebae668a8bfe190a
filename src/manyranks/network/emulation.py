"""In a rank: gloo's calls that finish no sooner than on the network that was ordered.

Every call that communicates passes PyTorch's dispatcher as an operator (`c10d::allreduce_`, ...),
also those that DDP and FSDP make from C++. Here an operator runs gloo's kernel as before and
returns an `EmulatedWork` in place of gloo's Work. The values are gloo's own; only the moment
at which they count as delivered is emulated: all members of a call have entered it, the port is
free, and the ring has had its time. Nothing else is: no congestion by others, no lost packets, and
the processor time that gloo itself needs comes on top.
"""

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Work

from manyranks.network.emulated_work import EmulatedWork, Port
from manyranks.network.groups import Group, GroupCall
from manyranks.network.links import Network
from manyranks.network.operators import C10D, PEER, flat, size

NETWORK, FOLDER = "WORKBOOK_NETWORK", "WORKBOOK_NETWORK_FOLDER"
# operator -> the kind of call, by which `Network.seconds` knows it
KINDS = {operator: re.sub("(_into)?_tensor|_single", "", op) for operator, op in C10D.items()}
DISPATCH_KEY = torch._C.DispatchKey.BackendSelect
KEYS_BELOW = torch._C._dispatch_keyset_full_after(DISPATCH_KEY)


def emulate_if_configured() -> None:
    """Emulate the network that this rank's environment orders, if any, until the process ends."""
    if NETWORK in os.environ:
        network = Network.from_json(os.environ[NETWORK])
        Emulation(network, Path(os.environ[FOLDER])).install()


class Emulation:
    """One rank's part of the network."""

    def __init__(self, network: Network, folder: Path):
        self.network, self.folder, self.port = network, folder, Port()
        self.groups: dict[str, Group] = {}
        self.lock = threading.Lock()

    def install(self) -> None:
        """Stand before the operators' kernels in this process.

        At the key BackendSelect: below all modes, so that a recorder sees the call as always, and
        above the backends' own kernels.
        """
        self.library = torch.library.Library("c10d", "IMPL")
        for operator, kind in KINDS.items():
            self._wrap_operator(getattr(torch.ops.c10d, operator).default, kind)

    def _wrap_operator(self, operator: Any, kind: str) -> None:
        names = [argument.name for argument in operator._schema.arguments]

        def run(keyset: Any, *arguments: Any) -> Any:
            entry_time = time.perf_counter()
            results: list = []

            def post() -> tuple[list, Work]:
                # Without the GIL: gloo's threads may need it while they hold gloo's lock.
                outcome = operator.redispatch(keyset & KEYS_BELOW, *arguments)
                *tensors, work = outcome if isinstance(outcome, tuple) else (outcome,)
                results.extend(tensors)
                first = tensors[0] if tensors else []
                return [first] if isinstance(first, torch.Tensor) else first, Work.unbox(work)

            by_name = dict(zip(names, arguments, strict=False))
            delivery = self._start(kind, by_name, entry_time, post)
            return (*results, delivery.boxed()) if results else delivery.boxed()

        self.library.impl(operator, run, DISPATCH_KEY.name, with_keyset=True)

    def _start(self, kind: str, arguments: dict, entry_time: float, post: Any) -> EmulatedWork:
        group = self._group(dist.ProcessGroup.unbox(arguments["process_group"]))
        peer = next((arguments[key] for key in PEER if key in arguments), None)
        start = {"send": group.send, "recv": group.receive}.get(kind, group.collective)
        return start(GroupCall(kind, bytes_of(kind, arguments), peer, entry_time), post)

    def _group(self, group: dist.ProcessGroup) -> Group:
        with self.lock:
            if group.group_name not in self.groups:
                self.groups[group.group_name] = Group(group, self.network, self.port, self.folder)
            return self.groups[group.group_name]


def bytes_of(kind: str, arguments: dict) -> int:
    """The size by which `Network.seconds` knows a call, from an operator's named arguments."""
    input_sizes = [
        size(flat(value)) for key, value in arguments.items() if key.startswith(("input", "tensor"))
    ]
    output_sizes = [
        size(flat(value)) for key, value in arguments.items() if key.startswith("output")
    ]
    if kind == "barrier":
        return 0
    sizes = {"gather": input_sizes, "scatter": output_sizes}.get(kind, input_sizes + output_sizes)
    return max(sizes, default=0)
