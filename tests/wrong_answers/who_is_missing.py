# %% only the rows that all ranks have made
# told: None came back, and ranks wait
# told: required [3] in broadcast
edit("zip_longest(*own):", "zip(*own):")

# %% leaves the backend in the name
# told: Which call of which group did they never enter
edit('name.removeprefix("gloo:")', "name")

# %% nobody missing is an empty list
# told: All ranks have made all calls here
edit("    return None", '    return [], "", 0')

# %% the kind of a call is ignored, and so are the groups
# told: one has made another call in the place of the right one
edit("if one != name]", "if one is None]") + edit("in groups.items()", "in [*groups.items()][:1]")

# %% leaves out a group of which any rank waits elsewhere
# told: None came back, and ranks wait
# told: required [0, 1]
edit("!= group for rank in missing)", "!= group for rank in ranks)")

# %% searches the smaller groups first, and excuses nobody
# told: Which is the first that some rank has not made
edit(
    "in groups.items()",
    "in sorted(groups.items(), key=lambda pair: len(pair[1]))",
    "if any(waits_in.get(rank, group) != group for rank in missing):",
    "if False:",
)
