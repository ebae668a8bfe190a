# wrong: a future is not yet an output
# told: Which of its methods returns the output?
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(inputs)) as pool:
        jobs = [
            pool.submit(run, replica, rows) for replica, rows in zip(replicas, inputs, strict=False)
        ]
    return jobs
