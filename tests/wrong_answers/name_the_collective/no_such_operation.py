# wrong: a word that is none of ReduceOp's names
# told: Is what comes after it one of the operations
def name_the_collective():
    return {
        "A": "reduce",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce maximum",
        "H": "gather",
    }
