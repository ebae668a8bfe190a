# wrong: calls a copy of each replica, whose gradients would be lost
# told: and no copy is needed
import copy
from concurrent.futures import ThreadPoolExecutor


def parallel_apply(replicas, inputs):
    with ThreadPoolExecutor(len(inputs)) as pool:
        return list(pool.map(lambda replica, rows: copy.deepcopy(replica)(rows), replicas, inputs))
