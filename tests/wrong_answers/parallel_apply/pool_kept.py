# wrong: keeps the pool for the next call, and with it the threads
# told: a thread was left when the call was over
# told: What ends the threads of a pool?
from concurrent.futures import ThreadPoolExecutor

import torch

POOL = ThreadPoolExecutor(8)


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    jobs = [POOL.submit(run, *work) for work in zip(replicas, inputs, strict=False)]
    errors = [job.exception() for job in jobs]
    return [job.result() for job, _ in zip(jobs, errors, strict=True)]
