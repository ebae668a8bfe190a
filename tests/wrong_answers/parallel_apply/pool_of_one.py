# wrong: all replicas share one thread
# told: One thread ran all of them
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(max_workers=1) as pool:
        return list(pool.map(run, replicas, inputs))
