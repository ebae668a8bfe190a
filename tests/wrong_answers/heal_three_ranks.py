# %% as many steps as the rank with the fewest rows needs
# told: Rows are left out
def heal_three_ranks(rows, batch_size):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = rows[rank::ranks]
    fewest = len(rows) // ranks
    totals = []
    for start in range(0, fewest, batch_size):
        total = own[start : start + batch_size].sum()
        dist.all_reduce(total)
        totals.append(total.item())
    return totals
