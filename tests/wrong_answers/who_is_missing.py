# %% only the rows that all ranks have made
# told: None came back, and ranks wait
edit("zip_longest(*own):", "zip(*own):")

# %% leaves the backend in the name
# told: Which call of which group did they never enter
edit('name.removeprefix("gloo:")', "name")

# %% nobody missing is an empty list
# told: All ranks have made all calls here
edit("    return None", '    return [], "", 0')
