# %% a third key is missing
# told: Which keys does the task name
body("""
return {
    "layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256},
    "batch": {"tensor": 2, "pipeline": 1, "context": 2, "data": 64},
}
""")

# %% the degrees in a list
# told: a dict with four whole numbers
edit('{"tensor": 4, "pipeline": 1, "context": 1, "data": 256}', "[4, 1, 1, 256]")

# %% torchtitan's name of a degree
# told: there is no degree 'tp'
edit('"layer": {"tensor"', '"layer": {"tp"')

# %% half of the GPUs
# told: are 512 GPUs, not 1,024
# told: plan's answer
edit('"data": 256', '"data": 128')

# %% more tensor ranks than heads of keys and values
# told: tensor=16 does not divide the 8 heads of keys and values of Llama 3 405B
edit(
    '"layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256}',
    '"layer": {"tensor": 16, "pipeline": 1, "context": 1, "data": 64}',
)

# %% context ranks do not make a block smaller
# told: a GPU would hold 55.7 GB of 42.4 GB
# told: More data ranks do not make a block smaller
edit(
    '"layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256}',
    '"layer": {"tensor": 1, "pipeline": 1, "context": 4, "data": 256}',
)

# %% a pipeline gathers all of its blocks at once
# told: rank 1 of the pipeline (1F1B) would hold 184 GB
# told: How many does it have
edit(
    '"layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256}',
    '"layer": {"tensor": 1, "pipeline": 16, "context": 1, "data": 64}',
)

# %% a tensor group over two nodes
# told: 19.3% longer
# told: leave the node
edit(
    '"layer": {"tensor": 4, "pipeline": 1, "context": 1, "data": 256}',
    '"layer": {"tensor": 8, "pipeline": 1, "context": 1, "data": 128}',
)

# %% more data groups than sequences
# told: 64 sequences a step for 256 data groups
# told: How many groups can there be
edit(
    '"tensor": 2, "pipeline": 1, "context": 2, "data": 64',
    '"tensor": 1, "pipeline": 1, "context": 1, "data": 256',
)

# %% a node for each sequence
# told: tensor parallelism 667 ms
# told: need groups of this size
edit(
    '"tensor": 2, "pipeline": 1, "context": 2, "data": 64',
    '"tensor": 8, "pipeline": 1, "context": 1, "data": 32',
)

# %% a pipeline with two micro-batches
# told: bubble (75%)
# told: Ranks of the pipeline wait
edit(
    '"tensor": 2, "pipeline": 1, "context": 2, "data": 64',
    '"tensor": 1, "pipeline": 8, "context": 1, "data": 32',
)

# %% too many context ranks for the batch
# told: exchange of keys and values
edit(
    '"tensor": 2, "pipeline": 1, "context": 2, "data": 64',
    '"tensor": 1, "pipeline": 1, "context": 32, "data": 8',
)

# %% a node for each long sequence
# told: activations 136 GB
# told: Which degrees give it fewer tokens
edit(
    '"tensor": 1, "pipeline": 1, "context": 32, "data": 2',
    '"tensor": 8, "pipeline": 1, "context": 2, "data": 4',
)


# %% without the number of data groups
# told: How many data groups are there
# told: layer: data is missing
def which_dimension():
    return {"layer": {"tensor": 2}, "batch": {"tensor": 4}, "sequence": {"context": 32}}
