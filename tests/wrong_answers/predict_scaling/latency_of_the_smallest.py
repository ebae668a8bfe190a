# wrong: takes the seconds of the smallest message for its latency
# told: These are all the seconds of the smallest message
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    n, size, seconds = np.array(timings, dtype=float).T
    small, large = size.argmin(), size.argmax()
    alpha = seconds[small] / (2 * (n[small] - 1))
    data = seconds[large] - 2 * (n[large] - 1) * alpha
    beta = data / (2 * (n[large] - 1) / n[large] * size[large])
    sent = sum(2 * (ranks - 1) * (alpha + beta * bucket / ranks) for bucket in buckets)
    share = compute / ranks
    weak = compute / (compute + max(0, sent - hidden * compute))
    strong = share / (share + max(0, sent - hidden * share))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
