# wrong: a lambda reads i and rows when it runs, and the loop has gone on by then
# told: when it is defined or when it runs?
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(enabled):
            return replica(rows)

    with ThreadPoolExecutor(len(inputs)) as pool:
        jobs = []
        for i, rows in enumerate(inputs):
            jobs.append(pool.submit(lambda: run(replicas[i], rows)))
        return [job.result() for job in jobs]
