# wrong: the outputs stay inside
# told: Does the function return its result, on every path
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        pool.map(run, replicas, inputs)
