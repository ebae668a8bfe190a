# %% shortens the names
# told: Which keys does the task name?
edit('"alpha": alpha, "beta": beta', '"a": alpha, "b": beta')


# %% returns the efficiencies as text
# told: plain numbers
edit('"weak": weak, "strong": strong', '"weak": f"{weak:.0%}", "strong": f"{strong:.0%}"')


# %% rounds alpha to tens of microseconds
# told: Is something rounded
edit('"alpha": alpha', '"alpha": round(alpha, 5)')


# %% solves the first two timings alone, which may be the same
# told: How can you use all rows
edit(
    "np.linalg.lstsq(columns, seconds, rcond=None)[0]",
    "np.linalg.solve(columns[:2], seconds[:2])",
)


# %% sorts the caller's list
# told: changes the caller's lists
edit("    n, size", "    timings.sort()\n    n, size")


# %% takes the slope between two timings, which may be the same
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


# %% nothing is hidden, and an efficiency is taken for a speed-up
# told: What runs while a rank computes
# told: 1 is the ideal
def predict_scaling(timings, compute, buckets, hidden, ranks):
    rows = [(2 * (n - 1), 2 * (n - 1) / n * size) for n, size, _ in timings]
    alpha, beta = np.linalg.lstsq(np.array(rows), [row[2] for row in timings], rcond=None)[0]
    sent = 0
    for bucket in buckets:
        sent += 2 * (ranks - 1) * alpha + 2 * (ranks - 1) / ranks * bucket * beta
    weak, strong = compute / (compute + sent), compute / (compute / ranks + sent)
    return dict(alpha=alpha, beta=beta, weak=weak, strong=strong)
