# %% reads the sums before they are there
# told: still at work when your function returned
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals, async_op=True)
    return (totals[0] / totals[1]).item()


# %% calls backward itself, and the graph is used up
# told: uses up or cuts off the graph
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    loss.backward()
    total = loss.item() * rows if rows else 0.0
    totals = torch.tensor([total, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


# %% keeps the loss of every call, and with it the graph
# told: the graphs of earlier calls are still in memory
import torch
import torch.distributed as dist

LOSSES = []


def global_loss(loss, rows):
    LOSSES.append(loss)
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


# %% 0 instead of 0.0: where there are no rows, the tensor is int64
# told: different shape or dtype on the ranks
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


# %% what comes back still has the graph of the loss
# told: keeps the graph of its step in memory
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = loss * rows if rows else loss * 0
    totals = torch.stack([total.nan_to_num(), torch.tensor(float(rows))])
    dist.all_reduce(totals)
    return totals[0] / totals[1]


# %% a rank without rows does not come
# told: has returned without it
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    if rows == 0:
        return 0.0
    totals = torch.tensor([loss.item() * rows, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


# %% an object collective is two
# told: An object collective is two
import torch.distributed as dist


def global_loss(loss, rows):
    pairs = [None] * dist.get_world_size()
    dist.all_gather_object(pairs, (loss.item(), rows))
    return sum(mean * n for mean, n in pairs if n) / sum(n for _, n in pairs)


# %% one collective for the losses, one for the rows
# told: Which numbers could travel in the same tensor
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    total = torch.tensor(loss.item() * rows if rows else 0.0)
    all_rows = torch.tensor(rows)
    dist.all_reduce(total)
    dist.all_reduce(all_rows)
    return (total / all_rows).item()


# %% reduce leaves the sum on rank 0 alone
# told: After reduce or gather one rank alone has the result
# right at: 1
import torch
import torch.distributed as dist


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.reduce(totals, dst=0)
    return (totals[0] / totals[1]).item()


# %% adds up the rows in the first call alone
# told: the mean over all rows
# told: Made first, this call is right
import torch
import torch.distributed as dist

ROWS = []


def global_loss(loss, rows):
    totals = torch.tensor([loss.item() * rows if rows else 0.0, rows])
    dist.all_reduce(totals)
    ROWS.append(totals[1].item())
    return totals[0].item() / ROWS[0]


# %% writes into the loss, whose memory detach shares
# told: detach() and data share
# right at: 1
def global_loss(loss, rows):
    if not rows:
        loss.detach().zero_()
    totals = torch.tensor([loss.item() * rows, rows])
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


# %% rounds the sum over all rows to bfloat16
# told: Which of your numbers are bfloat16, too?
# right at: 1
edit("totals[0] / totals[1]", "totals[0].to(loss.dtype) / totals[1]")
