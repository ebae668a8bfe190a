# wrong: believes that all pieces but the last have the same number of rows
# told: All replicas but the last have the same weight
def weighted_gradients(gradients, rows):
    believed = [rows[0]] * (len(rows) - 1) + [rows[-1]]
    shares = [count / sum(believed) for count in believed]
    return [
        sum(share * one for share, one in zip(shares, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
