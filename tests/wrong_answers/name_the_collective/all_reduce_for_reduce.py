# wrong: everyone gets the sum, not one rank alone
# told: A of the table
# told: all_reduce gives
def name_the_collective():
    return {
        "A": "all_reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
