# %% a tuple
# told: Which of your lines makes a dict
edit('{"limit": best, "seconds": arrivals[best]}', "(best, arrivals[best])")

# %% the arrivals of all limits
# told: Which keys does the task name
edit('{"limit": best, "seconds": arrivals[best]}', "arrivals")

# %% when the last bucket begins
# told: Take the limit that you found
edit('"seconds": arrivals[best]', '"seconds": arrivals[best] - latency / 2')

# %% before backward has ended
# told: No bucket is there so early
edit('"seconds": arrivals[best]', '"seconds": arrivals[best] / 9')

# %% a limit that is not in the list
# told: This is none of the limits
edit('"limit": best', '"limit": best + 1')

# %% sorts the caller's list
# told: Which line changes one of them
edit("    arrivals = {}\n", "    arrivals = {}\n    limits.sort()\n")
