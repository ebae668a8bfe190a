# wrong: weighted right, and then the mean of the replicas on top
# told: by the number of replicas as well
def weighted_gradients(gradients, rows):
    combined = []
    for of_one in zip(*gradients, strict=True):
        total = sum(n / sum(rows) * one for n, one in zip(rows, of_one, strict=True))
        combined.append(total / len(rows))
    return combined
