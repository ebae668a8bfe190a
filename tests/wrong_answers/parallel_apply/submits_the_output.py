# wrong: calls the replica, and hands its output to submit
# told: submit takes the replica and its input
from concurrent.futures import ThreadPoolExecutor


def parallel_apply(replicas, inputs):
    with ThreadPoolExecutor(len(inputs)) as pool:
        jobs = [pool.submit(replica(rows)) for replica, rows in zip(replicas, inputs, strict=False)]
        return [job.result() for job in jobs]
