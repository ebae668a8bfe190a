# wrong: waits for each thread before it starts the next
# told: The threads took turns
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    outputs = []
    for replica, rows in zip(replicas, inputs, strict=False):
        with ThreadPoolExecutor(1) as pool:
            outputs.append(pool.submit(run, replica, rows).result())
    return outputs
