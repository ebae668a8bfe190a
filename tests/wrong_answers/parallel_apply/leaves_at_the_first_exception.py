# wrong: an exception comes out while other replicas are still running
# told: was still running when
# told: What waits until every thread has ended
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    pool = ThreadPoolExecutor(len(replicas))
    jobs = [pool.submit(run, *work) for work in zip(replicas, inputs, strict=False)]
    try:
        return [job.result() for job in jobs]
    finally:
        pool.shutdown(wait=False)
