# wrong: charges the largest bucket only
# told: Only the largest bucket was charged
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    sent = 2 * (ranks - 1) * (alpha + beta * max(buckets) / ranks)
    share = compute / ranks
    weak = compute / (compute + max(0, sent - hidden * compute))
    strong = share / (share + max(0, sent - hidden * share))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
