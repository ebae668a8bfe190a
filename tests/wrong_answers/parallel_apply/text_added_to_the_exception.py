# wrong: another type and another text
# told: RuntimeError: replica 0:
from concurrent.futures import ThreadPoolExecutor

import torch


def parallel_apply(replicas, inputs):
    enabled = torch.is_grad_enabled()

    def run(i):
        try:
            with torch.set_grad_enabled(enabled):
                return replicas[i](inputs[i])
        except Exception as error:
            raise RuntimeError(f"replica {i}: {error}") from error

    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(run, range(len(inputs))))
