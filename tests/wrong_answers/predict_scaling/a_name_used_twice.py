# wrong: the loop over the timings overwrites `ranks`
# told: Does a loop overwrite this name
import numpy as np


def predict_scaling(timings, compute, buckets, hidden, ranks):
    rows, measured = [], []
    for ranks, size, seconds in timings:
        rows.append([2 * (ranks - 1), 2 * (ranks - 1) / ranks * size])
        measured.append(seconds)
    alpha, beta = np.linalg.lstsq(np.array(rows), np.array(measured), rcond=None)[0]
    sent = sum(2 * (ranks - 1) * (alpha + beta * bucket / ranks) for bucket in buckets)
    share = compute / ranks
    weak = compute / (compute + max(0, sent - hidden * compute))
    strong = share / (share + max(0, sent - hidden * share))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
