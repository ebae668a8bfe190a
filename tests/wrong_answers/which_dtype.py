# %% takes the loss for 16 bits
# told: This is a loss
edit('"f": "float32"', '"f": "bfloat16"')

# %% everything under autocast has 16 bits
# told: Both inputs have 32 bits
edit('"b": "float32"', '"b": torch.bfloat16')

# %% a word that is no format
# told: 'fp16' for a
edit('"a": "bfloat16"', '"a": "fp16"')

# %% not all of them
# told: no name for b, c
edit('"b": "float32",\n        "c": "bfloat16",\n', "")

# %% a list
# told: a dict of names
body('return ["bfloat16"] * 10')
