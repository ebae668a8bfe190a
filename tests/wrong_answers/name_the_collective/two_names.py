# wrong: two names for a letter, both of which would be right
# told: Which of the two do you choose
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
