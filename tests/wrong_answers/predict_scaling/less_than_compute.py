# wrong: a step may be shorter than its compute
# told: What is the least time that a step can take
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    columns = np.stack([2 * (n - 1), 2 * (n - 1) / n * size], axis=1)
    alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]
    messages = 2 * (ranks - 1)
    sent = sum(messages * (alpha + beta * bucket / ranks) for bucket in buckets)

    def step(compute):
        return compute + sent - hidden * compute

    weak = compute / step(compute)
    strong = compute / ranks / step(compute / ranks)
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
