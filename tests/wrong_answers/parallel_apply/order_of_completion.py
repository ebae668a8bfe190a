# wrong: who is done first comes first
# told: Which came first in this list?
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(replicas)) as pool:
        jobs = [pool.submit(run, *work) for work in zip(replicas, inputs, strict=False)]
        return [job.result() for job in as_completed(jobs)]
