# %% with three passes
def mfu(parameters, layers, width, length, tokens_per_second, gpus, peak):
    forward = 2 * parameters + 4 * layers * width * length
    return 3 * forward * (tokens_per_second / gpus) / peak
