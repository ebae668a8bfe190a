# wrong: divides by all rows, as is right where each replica has the gradient of a sum
# told: These are means already
def weighted_gradients(gradients, rows):
    return [sum(of_one) / sum(rows) for of_one in zip(*gradients, strict=True)]
