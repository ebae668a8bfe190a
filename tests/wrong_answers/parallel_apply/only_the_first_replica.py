# wrong: every input goes through replica 0
# told: counted from 0: [0
# told: All calls have taken replica 0
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(rows):
        with torch.set_grad_enabled(enabled):
            return replicas[0](rows)

    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(run, inputs))
