# wrong: everyone gets the pieces, not one rank alone
# told: H of the table
# told: all_gather gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "all_gather",
    }
