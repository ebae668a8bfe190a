# wrong: a letter without a name
# told: no name for G
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": None,
        "H": "gather",
    }
