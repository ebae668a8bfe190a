# wrong: hides the strong step behind the compute of one rank
# told: How much compute hides the all-reduces
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    messages = 2 * (ranks - 1)
    sent = sum(messages * (alpha + beta * bucket / ranks) for bucket in buckets)

    def step(compute):
        return compute + max(0, sent - hidden * compute)

    weak = compute / step(compute)
    strong = compute / ranks / (compute / ranks + max(0, sent - hidden * compute))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
