# wrong: sends nothing
# told: own number, and nothing was sent
# right at: 1
def mean_over_ranks(value):
    return value
