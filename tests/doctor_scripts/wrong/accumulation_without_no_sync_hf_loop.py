# speechbrain #1802: each micro-batch sends all gradients
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class TextDataset(Dataset):
    def __init__(self, n=256, length=12):
        g = torch.Generator().manual_seed(4)
        self.input_ids = torch.randint(1, 60, (n, length), generator=g)

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, i):
        ids = self.input_ids[i]
        return {"input_ids": ids, "labels": (ids.sum() % 2).long()}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(60, 16)
        self.encoder = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.out = nn.Linear(16, 2)

    def forward(self, input_ids, labels):
        logits = self.out(self.encoder(self.embed(input_ids)).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--num_train_epochs", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dataset = TextDataset()
    sampler = DistributedSampler(dataset, seed=42)
    dataloader = DataLoader(dataset, batch_size=8, sampler=sampler)
    model = DDP(Classifier())
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    scheduler = LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
    model.train()
    for epoch in range(args.num_train_epochs):
        sampler.set_epoch(epoch)
        for step, batch in enumerate(dataloader):
            outputs = model(**batch)
            loss = outputs["loss"] / args.gradient_accumulation_steps
            loss.backward()  # <- here
            if (step + 1) % args.gradient_accumulation_steps == 0:
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
