# wrong: sends nothing
# told: This is one rank's own number
# right at: 1
def mean_over_ranks(value):
    return value
