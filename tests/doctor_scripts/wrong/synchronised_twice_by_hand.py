# LightZero #200: DDP averages, and the old sync_gradients is still called
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def sync_gradients(model):
    """Average the gradients of all workers."""
    for param in model.parameters():
        if param.grad is not None:
            dist.all_reduce(param.grad, op=dist.ReduceOp.SUM)  # <- here
            param.grad /= dist.get_world_size()


class Policy(nn.Module):
    def __init__(self, obs_dim=6, n_actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(obs_dim, 32), nn.ReLU())
        self.value = nn.Linear(32, 1)
        self.logits = nn.Linear(32, n_actions)

    def forward(self, obs):
        h = self.trunk(obs)
        return self.logits(h), self.value(h).squeeze(-1)


def collect(n=64):
    obs = torch.randn(n, 6)
    return obs, torch.randint(3, (n,)), obs.sum(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(int(os.environ["RANK"]))
    policy = DDP(Policy())
    optim = torch.optim.Adam(policy.parameters(), lr=3e-3)
    for it in range(10):
        obs, action, target = collect()
        logits, value = policy(obs)
        loss = nn.functional.cross_entropy(logits, action) + (value - target).pow(2).mean()
        optim.zero_grad()
        loss.backward()
        sync_gradients(policy)  # <- here
        optim.step()
        if it % 5 == 0 and dist.get_rank() == 0:
            print(f"iter {it} loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
