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
edit(
    "alpha, beta = np.linalg.lstsq(columns, seconds, rcond=None)[0]",
    """(messages, one), (_, other) = columns[:2].tolist()
    beta = (seconds[1] - seconds[0]).item() / (other - one)
    alpha = (seconds[0] - beta * one) / messages""",
)

# %% nothing is hidden, and an efficiency is taken for a speed-up
# told: What runs while a rank computes
# told: 1 is the ideal
edit(
    "max(0.0, communication - hidden * compute)",
    "communication",
    "compute / (ranks * step(compute / ranks))",
    "compute / step(compute / ranks)",
)
