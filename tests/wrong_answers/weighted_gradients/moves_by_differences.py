# wrong: an infinite gradient becomes nan, for the next one is subtracted from it
# told: nan, although the mean is infinite
def weighted_gradients(gradients, rows):
    mean = [gradient.clone() for gradient in gradients[0]]
    seen = rows[0]
    for own, count in zip(gradients[1:], rows[1:], strict=True):
        seen += count
        for so_far, gradient in zip(mean, own, strict=True):
            so_far += (gradient - so_far) * (count / seen)
    return mean
