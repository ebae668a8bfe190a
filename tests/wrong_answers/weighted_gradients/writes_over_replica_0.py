# wrong: adds up in the memory of replica 0's gradients
# told: were overwritten as well
def weighted_gradients(gradients, rows):
    total = gradients[0]
    for number in range(len(total)):
        total[number] *= rows[0] / sum(rows)
        for other, count in zip(gradients[1:], rows[1:], strict=True):
            total[number] += other[number] * (count / sum(rows))
    return total
