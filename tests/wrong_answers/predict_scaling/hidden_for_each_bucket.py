# wrong: hides each bucket behind the whole window
# told: for all of them together
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    each = [2 * (ranks - 1) * (alpha + beta * bucket / ranks) for bucket in buckets]
    share = compute / ranks
    weak = compute / (compute + sum(max(0, one - hidden * compute) for one in each))
    strong = share / (share + sum(max(0, one - hidden * share) for one in each))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
