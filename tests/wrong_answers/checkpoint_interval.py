# %% returns a tuple
# told: a dict with the keys "interval", "lost"
# told: Which of your lines makes a dict
edit('{"interval": interval, "lost": lost}', "(interval, lost)")

# %% another key
# told: Which keys does the task name
edit('"lost": lost', '"share": lost')

# %% whole seconds
# told: Is something rounded on the way
edit('"interval": interval', '"interval": round(interval)')

# %% the interval with half a restart, a formula of its own
# told: Write down M and C, each with its unit
edit("(2 * between_failures * save_seconds)", "(7 * between_failures * save_seconds)")

# %% 1 over the interval
# told: Write down C, T and M
edit("    return", "    lost = 1 / interval\n    return")
