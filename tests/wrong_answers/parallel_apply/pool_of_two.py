# wrong: two threads for any number of replicas
# told: How many threads may work at the same time
# told: at most 2 ran
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(max_workers=2) as pool:
        return list(pool.map(run, replicas, inputs))
