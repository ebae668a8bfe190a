# wrong: an N-th of the bytes in strong scaling
# told: How many bytes does an all-reduce have if
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    sent = sum(2 * (ranks - 1) * (alpha + beta * bucket / ranks) for bucket in buckets)
    share = compute / ranks
    less = sum(2 * (ranks - 1) * (alpha + beta * bucket / ranks**2) for bucket in buckets)
    weak = compute / (compute + max(0, sent - hidden * compute))
    strong = share / (share + max(0, less - hidden * share))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
