# ibot #15, apex #629: every rank saves the checkpoint under one name
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def save_checkpoint(model, optimizer, epoch, output_dir):
    os.makedirs(output_dir, exist_ok=True)
    state = {
        "model": model.module.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
    }
    torch.save(state, os.path.join(output_dir, "checkpoint.pth"))  # <- here


def train_one_epoch(model, loader, optimizer, epoch):
    loader.sampler.set_epoch(epoch)
    model.train()
    for samples, targets in loader:
        loss = nn.functional.cross_entropy(model(samples), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(args):
    dist.init_process_group("gloo")
    torch.manual_seed(args.seed)
    samples = torch.randn(192, 1, 6, 6)
    dataset = TensorDataset(samples, torch.randint(4, (192,)))
    loader = DataLoader(dataset, args.batch_size, sampler=DistributedSampler(dataset))
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, loader, optimizer, epoch)
        save_checkpoint(model, optimizer, epoch, args.output_dir)
        if dist.get_rank() == 0:
            print(f"Epoch: [{epoch}] loss: {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", default="/tmp/planted_checkpoints")
    parser.add_argument("--batch_size", default=8, type=int)
    parser.add_argument("--epochs", default=2, type=int)
    parser.add_argument("--lr", default=5e-4, type=float)
    parser.add_argument("--seed", default=0, type=int)
    main(parser.parse_args())
