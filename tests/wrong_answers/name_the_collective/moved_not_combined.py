# wrong: an operation for a call that only moves
# told: combine numbers, or move them
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast MAX",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
