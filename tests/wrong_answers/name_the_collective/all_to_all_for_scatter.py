# wrong: pieces of all ranks, where one rank deals out its own
# told: D of the table
# told: all_to_all gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "all_to_all",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
