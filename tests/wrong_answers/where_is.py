# %% takes the GPUs out of the caller's list
# told: Which line changes the caller's list
def where_is(gpus):
    places, node = [], 0
    while gpus:
        places += [(node, local) for local in range(gpus.pop(0))]
        node += 1
    return places


# %% pop takes the nodes from the end of the list
# told: but their order is not
def where_is(gpus):
    left, places = gpus.copy(), []
    while left:
        count = left.pop()
        places += [(len(left), local) for local in range(count)]
    return places


# %% a place is a list, which is not equal to a tuple
# told: find at index r for rank r
edit("return [(node, local)", "return [[node, local]")
