# wrong: adds the means up
# told: This is the plain sum
def weighted_gradients(gradients, rows):
    return [sum(of_one) for of_one in zip(*gradients, strict=True)]
