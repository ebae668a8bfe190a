# wrong: one rank gets the pieces, not everyone
# told: B of the table
# told: gather gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
