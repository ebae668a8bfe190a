# wrong: everyone gets everything, and not a piece of each
# told: C of the table
# told: all_gather gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_gather",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
