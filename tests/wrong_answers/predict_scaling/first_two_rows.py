# wrong: solves the first two timings alone, which may be the same
# told: How can you use all rows
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.solve(columns[:2], seconds[:2])
    messages = 2 * (ranks - 1)
    sent = sum(messages * (alpha + beta * bucket / ranks) for bucket in buckets)

    def step(compute):
        return compute + max(0, sent - hidden * compute)

    weak = compute / step(compute)
    strong = compute / ranks / step(compute / ranks)
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
