# wrong: weights by the replica's number, not by its rows
# told: the number of a replica decides its weight
def weighted_gradients(gradients, rows):
    total = sum(range(1, len(rows) + 1))
    return [
        sum((number + 1) / total * gradient for number, gradient in enumerate(of_one))
        for of_one in zip(*gradients, strict=True)
    ]
