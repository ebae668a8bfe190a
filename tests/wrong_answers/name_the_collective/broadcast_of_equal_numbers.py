# wrong: takes many equal numbers for one that was handed round
# told: B of the table
# told: broadcast gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "broadcast",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
