# sd-scripts #989, OpenTSLM #49: another method than forward, called on the wrapped module
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class LitClassifier(nn.Module):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.lr = lr
        self.features = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4))
        self.head = nn.Linear(32, 3)

    def forward(self, x):
        return self.head(self.features(x).flatten(1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9)


class MiniTrainer:
    def __init__(self, max_epochs):
        self.max_epochs = max_epochs

    def fit(self, lit_module, loader):
        self.model = DDP(lit_module)
        optimizer = lit_module.configure_optimizers()
        for epoch in range(self.max_epochs):
            loader.sampler.set_epoch(epoch)
            for batch_idx, batch in enumerate(loader):
                loss = self.model.module.training_step(batch, batch_idx)  # <- here
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if dist.get_rank() == 0:
                print(f"Epoch {epoch}: train_loss={loss.item():.3f}")


if __name__ == "__main__":
    dist.init_process_group("gloo")
    torch.manual_seed(5)
    signals = torch.randn(192, 1, 20)
    dataset = TensorDataset(signals, torch.randint(3, (192,)))
    train_loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset))
    MiniTrainer(max_epochs=2).fit(LitClassifier(), train_loader)
    dist.destroy_process_group()
