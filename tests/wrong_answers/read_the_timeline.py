# %% the rank with the longest call
# told: Which of the two limits decides here
def read_the_timeline(events):
    calls = {}
    for rank, kind, start, end in events:
        if kind == "call":
            calls[rank] = calls.get(rank, 0) + end - start
    return max(calls, key=calls.get), "loading"


# %% the cause in words of its own
# told: Is yours one of these words
# told: cause: loader
edit("return late, max(more, key=lambda cause: more[cause])", 'return late, "loader"')

# %% the rank of the network
# told: Which rank goes with it
edit('return None, "network"', 'return 0, "network"')

# %% the rank alone
# told: Which of your lines makes the pair
edit("return late, max(more, key=lambda cause: more[cause])", "return late")

# %% the first rank
# told: Nobody waits for this rank
edit("late = max(ranks, key=lambda rank: len(waits[rank]))", "late = ranks[0]")

# %% sorts the caller's list
# told: Which line changes the list
edit("    ranks = sorted(", "    events.sort()\n    ranks = sorted(")
