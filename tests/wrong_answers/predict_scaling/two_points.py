# wrong: takes the slope between two timings, which may be the same
# told: By what do you divide
def predict_scaling(timings, compute, buckets, hidden, ranks):
    (n, size, seconds), (m, other, longer) = timings[:2]
    parts = 2 * (n - 1) / n * size, 2 * (m - 1) / m * other
    beta = (longer - seconds) / (parts[1] - parts[0])
    alpha = (seconds - beta * parts[0]) / (2 * (n - 1))
    messages = 2 * (ranks - 1)
    sent = sum(messages * (alpha + beta * bucket / ranks) for bucket in buckets)

    def step(compute):
        return compute + max(0, sent - hidden * compute)

    weak = compute / step(compute)
    strong = compute / ranks / step(compute / ranks)
    return {"alpha": alpha, "beta": beta, "weak": weak, "strong": strong}
