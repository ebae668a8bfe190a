"""A training by torchft: a replica dies, and nobody starts again. Needs `pip install torchft`.

torchft_lighthouse --bind 127.0.0.1:29510 --min_replicas 1
REPLICA=0 TORCHFT_LIGHTHOUSE=http://127.0.0.1:29510 python tests/workers/with_torchft.py 100
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torchft import Manager, Optimizer, ProcessGroupGloo

PATIENCE = timedelta(seconds=5)  # for a replica that has died


def main(steps: int) -> None:
    replica = int(os.environ["REPLICA"])
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # its own ranks'
    torch.manual_seed(replica)  # the newcomer gets its weights from a replica that lives
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def load(state: dict) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def state() -> dict:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    manager = Manager(
        ProcessGroupGloo(PATIENCE), load, state, min_replica_size=1, timeout=PATIENCE,
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port,
        replica_id=f"replica_{replica}", hostname="127.0.0.1",
    )  # fmt: skip
    # torchft's DistributedDataParallel ends with an AssertionError here (0.2, torch 2.13)
    managed = Optimizer(manager, optimizer)
    while manager.current_step() < steps:
        managed.zero_grad()  # asks the lighthouse who takes part in this step
        time.sleep(0.2)
        rows = torch.randn(16, 8, generator=torch.Generator().manual_seed(manager.current_step()))
        model(rows).square().mean().backward()
        averages = [manager.allreduce(parameter.grad) for parameter in model.parameters()]
        for average in averages:  # over those who take part
            average.wait()
        managed.step()  # if all of them got through
        print(
            f"replica {replica}: step {manager.current_step()}, {manager.num_participants()} "
            f"replicas, sum {sum(p.sum() for p in model.parameters()):.6f}",
            flush=True,
        )
    manager.shutdown(wait=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)
