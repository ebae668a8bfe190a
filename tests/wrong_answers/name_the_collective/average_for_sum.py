# wrong: takes the sums for means, as of gradients
# told: F of the table
# told: How does the table combine them
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter AVG",
        "G": "all_reduce MAX",
        "H": "gather",
    }
