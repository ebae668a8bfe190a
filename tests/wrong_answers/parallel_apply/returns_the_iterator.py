# wrong: map returns an iterator
# told: what makes a list of it?
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(inputs)) as pool:
        return pool.map(run, replicas, inputs)
