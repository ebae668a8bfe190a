# wrong: weights by rows, and forgets to divide
# told: What do the weights add up to?
def weighted_gradients(gradients, rows):
    return [
        sum(n * one for n, one in zip(rows, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
