# wrong: each rank prints the loss of its own rows
# told: This is the rank's own loss
# told: Nothing was sent
# right at: 1
def global_loss(loss, rows):
    return loss.item()
