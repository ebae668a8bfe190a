# ignite #664: ReduceLROnPlateau sees each rank's own validation loss
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Runner:
    def __init__(self, train, val, epochs=3):
        self.train_sampler = DistributedSampler(train)
        self.train_loader = DataLoader(train, batch_size=8, sampler=self.train_sampler)
        self.val = val
        self.epochs = epochs
        self.model = DDP(nn.Sequential(nn.Linear(3, 12), nn.Sigmoid(), nn.Linear(12, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.scheduler = ReduceLROnPlateau(self.optimizer, factor=0.5, patience=0, threshold=0.2)

    @torch.no_grad()
    def val_loss(self, epoch):
        # every rank looks at a part of the validation set
        rank, world = dist.get_rank(), dist.get_world_size()
        x, y = (t[rank::world] for t in self.val)
        return nn.functional.mse_loss(self.model.module(x), y).item()

    def run(self):
        for epoch in range(self.epochs):
            self.train_sampler.set_epoch(epoch)
            for x, y in self.train_loader:
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()  # <- here
            loss = self.val_loss(epoch)
            self.scheduler.step(loss)  # <- here
            print(f"[{dist.get_rank()}] {epoch}: {loss:.4f} lr {self.scheduler.get_last_lr()}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(192, 3)
    train_set = TensorDataset(x, x.sum(1, keepdim=True))
    xv = torch.randn(16, 3)
    scale = torch.tensor([1.0, -4.0]).repeat(8).unsqueeze(1)  # odd rows are the hard ones
    Runner(train_set, (xv, scale * xv.sum(1, keepdim=True))).run()
    dist.destroy_process_group()
