# wrong: counts the replicas, not the inputs
# told: There can be fewer inputs than replicas
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(i):
        with torch.set_grad_enabled(enabled):
            return replicas[i](inputs[i])

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(run, range(len(replicas))))
