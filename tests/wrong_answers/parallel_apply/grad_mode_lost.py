# wrong: the threads know nothing of the caller's no_grad
# told: A new thread starts with gradients on
from concurrent.futures import ThreadPoolExecutor


def parallel_apply(replicas, inputs):
    with ThreadPoolExecutor(len(replicas)) as pool:
        jobs = [pool.submit(replica, rows) for replica, rows in zip(replicas, inputs, strict=False)]
        return [job.result() for job in jobs]
