# wrong: one replica after the other, without threads
# told: in the caller's own thread
def parallel_apply(replicas, inputs):
    return [replica(rows) for replica, rows in zip(replicas, inputs, strict=False)]
