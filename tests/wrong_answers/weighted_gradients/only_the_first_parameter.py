# wrong: returns inside of the loop
# told: a list of length 1
# told: What does your loop go through
def weighted_gradients(gradients, rows):
    for of_one in zip(*gradients, strict=True):
        combined = [sum(n / sum(rows) * one for n, one in zip(rows, of_one, strict=True))]
        return combined
