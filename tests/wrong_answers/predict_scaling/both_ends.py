# wrong: takes the first and the last row in order, and they may have the same S / N
# told: or have the same S / N


def predict_scaling(timings, compute, buckets, hidden, ranks):
    rows = sorted(set(timings))
    (n, size, seconds), (m, other, more) = rows[0], rows[-1]
    slope = more / (2 * (m - 1)) - seconds / (2 * (n - 1))
    beta = slope / (other / m - size / n)
    alpha = seconds / (2 * (n - 1)) - beta * size / n
    sent = sum(2 * (ranks - 1) * (alpha + beta * bucket / ranks) for bucket in buckets)
    share = compute / ranks
    weak = compute / (compute + max(0, sent - hidden * compute))
    strong = share / (share + max(0, sent - hidden * share))
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
