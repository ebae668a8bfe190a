# wrong: deals out pieces without adding up
# told: F of the table
# told: scatter gives
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
