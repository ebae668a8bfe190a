# %% the rank with the longest call
# told: Which of the two limits decides here
# told: read_the_timeline(events of
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

# %% blames the rank that is idle least
# told: who enters it last
# told: required 2
edit(
    "max(ranks, key=lambda rank: len(waits[rank]))",
    'min(ranks, key=lambda rank: len(during(rank, "call") - busy[rank]))',
)

# %% counts a millisecond once for all that wait in it
# told: who enters it last
# told: required 0
edit("len(waits[rank]))", "len({ms for _, ms in waits[rank]}))")

# %% compares with the largest of the others instead of their mean
# told: How long does the late rank compute and load
edit("sum(others) / len(others)", "max(others)")

# %% adds a wait for two late ranks twice
# told: Which of the two limits decides here
# told: read_the_timeline(events=[
edit("len(set().union(*waits.values()))", "sum(map(len, waits.values()))")
