# wrong: a running mean that moves by the share in all rows, not in those seen so far
# told: This is a running mean
def weighted_gradients(gradients, rows):
    combined = []
    for of_one in zip(*gradients, strict=True):
        mean = of_one[0].clone()
        for one, count in zip(of_one[1:], rows[1:], strict=True):
            mean += (one - mean) * (count / sum(rows))
        combined.append(mean)
    return combined
