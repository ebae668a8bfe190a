# wrong: two names for a letter, both of which would be right
# told: Which one shall be called
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast or all_reduce MAX",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
