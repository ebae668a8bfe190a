# %% a pipeline and whole nodes; the published rule of thumb; tensor first
def which_dimension():
    return {
        "layer": {"tensor": 4, "pipeline": 32, "context": 1, "data": 8},
        "batch": {"tensor": 4, "pipeline": 1, "context": 1, "data": 64},
        "sequence": {"tensor": 8, "pipeline": 2, "context": 4, "data": 1},
    }


# %% only the degrees above 1, in another order
def which_dimension():
    layer, batch = {"tensor": 2, "data": 512}, {"context": 8, "data": 32}
    sequence = {"data": 2, "context": 16, "tensor": 2}
    return {"sequence": sequence, "batch": batch, "layer": layer}
