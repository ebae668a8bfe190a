# wrong: a default value is made once, not in each call
# told: a list of length 10
# told: What does your function keep from one call to the next?
def weighted_gradients(gradients, rows, combined=[]):
    for of_one in zip(*gradients, strict=True):
        combined.append(sum(n / sum(rows) * one for n, one in zip(rows, of_one, strict=True)))
    return combined
