# wrong: adds up in float32, and comes back to the dtype at the end
# told: right up to the rounding of float32
def weighted_gradients(gradients, rows):
    return [
        sum(n / sum(rows) * one.float() for n, one in zip(rows, of_one, strict=True)).to(
            of_one[0].dtype
        )
        for of_one in zip(*gradients, strict=True)
    ]
