# wrong: adds up what is only handed round
# told: E of the table
# told: all_reduce gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "all_reduce",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
