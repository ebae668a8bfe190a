# wrong: takes the largest numbers for those of one rank
# told: G of the table
# told: broadcast gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "broadcast",
        "H": "gather",
    }
