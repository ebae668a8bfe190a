# wrong: adds up where the largest number wins
# told: G of the table
# told: all_reduce gives 18 20
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce",
        "H": "gather",
    }
