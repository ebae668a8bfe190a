# %% takes the loss for 16 bits
# told: This is a loss
def which_dtype():
    answer = dict.fromkeys("abcdefghij", "float32")
    return answer | {
        "a": "bfloat16",
        "c": "bfloat16",
        "f": "bfloat16",
        "h": "float64",
        "i": "int64",
    }


# %% everything under autocast has 16 bits
# told: Both inputs have 32 bits
import torch


def which_dtype():
    return dict.fromkeys("abcdefghij", torch.bfloat16)


# %% float16 in place of bfloat16
# told: float16 for a
def which_dtype():
    return {"a": "float16"}


# %% a word that is no format
# told: 'fp16' for a
def which_dtype():
    return {"a": "fp16"}


# %% not all of them
# told: no name for b, c
def which_dtype():
    return {"a": "bfloat16", "d": "float32", "e": "float32", "f": "float32", "g": "float32"} | {
        "h": "float64",
        "i": "int64",
        "j": "float32",
    }


# %% a list
# told: a dict of names
def which_dtype():
    return ["bfloat16"] * 10


# %% relu in 32 bits
# told: none of autocast
edit('"c": "bfloat16"', '"c": "float32"')


# %% a sum that takes the format of the first
# told: room for both
edit('"d": "float32"', '"d": "bfloat16"')


# %% a product is a product
# told: nothing that is larger
edit('"h": "float64"', '"h": "bfloat16"')


# %% the largest number, not its place
# told: places of numbers
edit('"i": "int64"', '"i": "bfloat16"')


# %% gradients in 16 bits
# told: format of its parameter
edit('"j": "float32"', '"j": "bfloat16"')
