# %% writes the shares into the caller's list
# told: came back your function changed rows
edit(
    "[own / sum(rows) for own in rows]",
    "[own / sum(rows) for own in rows]\n    rows[:] = shares",
)

# %% adds up in the memory of replica 0's gradients
# told: came back your function changed gradients
edit("combined.append(sum(weighted))", "combined.append(of_one[0].copy_(sum(weighted)))")

# %% writes shares into rows, so that the sum of all rows shrinks in the loop
# told: gradients or rows were overwritten as well
edit(
    "shares = [own / sum(rows) for own in rows]",
    "for replica in range(len(rows)):\n        rows[replica] /= sum(rows)\n    shares = rows",
)
