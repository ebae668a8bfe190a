# %% always names somebody
# told: Nobody is late here
# told: None; in step 0
edit("    if not steps:\n        return None\n", "")

# %% a threshold that only a large delay reaches
# told: Somebody is late, and None came back
edit(">= 0.01", ">= 0.05")

# %% a word of its own
# told: Which of the three words
# told: when: often
edit('else "sometimes"', 'else "often"')

# %% the steps instead of a word
# told: Which of your lines makes the pair
# told: (2, [1, 4])
body("""
    waits = [[left - entered for entered, left in own] for own in times]
    rank = 2
    return rank, [1, 4]
""")

# %% removes what it has read from the caller's lists
# told: Which line changes the lists of the caller
edit(
    "for own in times]",
    "for own in times]\n    times = [[own.pop(0) for _ in own[:]] for own in times]",
)

# %% compares with the mean of the others
# told: Who does not wait
edit("second - shortest >= 0.01", "(sum(of_all) - shortest) / (len(of_all) - 1) - shortest >= 0.01")
