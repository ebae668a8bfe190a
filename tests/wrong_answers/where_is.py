# %% takes the GPUs out of the caller's list
# told: Which line changes the caller's list
edit("enumerate(gpus)", "enumerate([gpus.pop(0) for _ in range(len(gpus))])")

# %% pop takes the nodes from the end of the list
# told: but their order is not
edit("enumerate(gpus)", "reversed([*enumerate(gpus)])")

# %% a place is a list, which is not equal to a tuple
# told: find at index r for rank r
edit("return [(node, local)", "return [[node, local]")
