# wrong: each rank prints its own
# told: and nothing was sent
# right at: 1
def metrics_in_one(loss_sum, correct, count):
    return loss_sum / max(count, 1), correct / max(count, 1)
