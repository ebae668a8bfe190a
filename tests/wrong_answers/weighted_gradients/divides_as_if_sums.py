# wrong: divides by all rows, as is right where each replica has the gradient of a sum
# told: Why is each divided by the number of all rows
def weighted_gradients(gradients, rows):
    return [sum(of_one) / sum(rows) for of_one in zip(*gradients, strict=True)]
