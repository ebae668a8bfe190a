# wrong: a name that torch.distributed has not
# told: Is it one of the eight names, in the same
def name_the_collective():
    return {
        "A": "allreduce MAX",
        "B": "all_gather",
        "C": "all_to_all",
        "D": "scatter",
        "E": "broadcast",
        "F": "reduce_scatter",
        "G": "all_reduce MAX",
        "H": "gather",
    }
