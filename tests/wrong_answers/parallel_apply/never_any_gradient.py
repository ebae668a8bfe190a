# wrong: no_grad, whatever the caller wants
# told: What has separated the outputs from the weights?
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    @torch.no_grad()
    def run(replica, rows):
        return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(run, replicas, inputs))
