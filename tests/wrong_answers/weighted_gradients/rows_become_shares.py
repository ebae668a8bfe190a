# wrong: writes the shares into the caller's list
# told: came back your function changed rows
def weighted_gradients(gradients, rows):
    total = sum(rows)
    for replica in range(len(rows)):
        rows[replica] /= total
    return [
        sum(share * one for share, one in zip(rows, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
