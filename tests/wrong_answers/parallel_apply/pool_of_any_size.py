# wrong: leaves the number of threads to the pool, which has few where there are few processors
# told: at most 5 ran at the same time
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    wanted = torch.is_grad_enabled()

    def run(replica, rows):
        with torch.set_grad_enabled(wanted):
            return replica(rows)

    with ThreadPoolExecutor() as pool:
        return list(pool.map(run, replicas, inputs))
