# wrong: adds up where the smallest number wins, and does not say so
# told: D of the table
# told: without an operation after its name, it adds up
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "reduce_scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
