# wrong: divides by the rows of the first piece, as if all were as long
# told: You divide by the rows of replica 0
def weighted_gradients(gradients, rows):
    combined = []
    for of_one in zip(*gradients, strict=True):
        total = sum(n * one for n, one in zip(rows, of_one, strict=True))
        combined.append(total / rows[0])
    return combined
