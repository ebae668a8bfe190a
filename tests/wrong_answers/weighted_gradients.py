# %% returns the gradient of the batch as one vector, without the way back
# told: a list is asked for
import torch


def weighted_gradients(gradients, rows):
    return sum(
        torch.cat([one.flatten() for one in own]) * (count / sum(rows))
        for own, count in zip(gradients, rows, strict=True)
    )


# %% a default value is made once, not in each call
# told: What does your function keep from one call to the next?
def weighted_gradients(gradients, rows, combined=[]):
    for of_one in zip(*gradients, strict=True):
        combined.append(sum(n / sum(rows) * one for n, one in zip(rows, of_one, strict=True)))
    return combined


# %% returns inside of the loop
# told: What does your loop go through
def weighted_gradients(gradients, rows):
    for of_one in zip(*gradients, strict=True):
        combined = [sum(n / sum(rows) * one for n, one in zip(rows, of_one, strict=True))]
        return combined


# %% writes the shares into the caller's list
# told: came back your function changed rows
def weighted_gradients(gradients, rows):
    total = sum(rows)
    for replica in range(len(rows)):
        rows[replica] /= total
    return [
        sum(share * one for share, one in zip(rows, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]


# %% adds up in the memory of replica 0's gradients
# told: came back your function changed gradients
def weighted_gradients(gradients, rows):
    total = gradients[0]
    for number in range(len(total)):
        total[number] *= rows[0] / sum(rows)
        for other, count in zip(gradients[1:], rows[1:], strict=True):
            total[number] += other[number] * (count / sum(rows))
    return total


# %% writes shares into rows, so that the sum of all rows shrinks in the loop
# told: gradients or rows were overwritten as well
def weighted_gradients(gradients, rows):
    for replica in range(len(rows)):
        rows[replica] /= sum(rows)
    return [
        sum(share * one for share, one in zip(rows, of_one, strict=True))
        for of_one in zip(*gradients, strict=True)
    ]
