# wrong: with one replica, returns its gradients instead of new tensors
# told: make no new tensor
def weighted_gradients(gradients, rows):
    if len(gradients) == 1:
        return gradients[0]
    shares = [count / sum(rows) for count in rows]
    return [
        sum(s * one for s, one in zip(shares, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
