# wrong: names without their letters
# told: a dict of names, with the letters
def name_the_collective():
    return ["reduce", "all_gather", "all_to_all", "scatter"]
