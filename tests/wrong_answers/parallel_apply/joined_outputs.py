# wrong: does the work of gather, too
# told: the work of gather
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return torch.cat(list(pool.map(run, replicas, inputs)))
