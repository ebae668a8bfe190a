# wrong: multiplies by the rows and divides last
# told: How large do the numbers get on the way
def weighted_gradients(gradients, rows):
    return [
        sum(n * one for n, one in zip(rows, of_one, strict=True)) / sum(rows)
        for of_one in zip(*gradients, strict=True)
    ]
