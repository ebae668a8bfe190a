# pytorch #43259: the embedding is frozen after DDP was made; the second forward raises
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class BagOfWords(nn.Module):
    def __init__(self, vocab=100, dim=16):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, tokens):
        return self.mlp(self.embed(tokens))


def main():
    dist.init_process_group("gloo")
    g = torch.Generator().manual_seed(8)
    tokens = torch.randint(100, (256, 10), generator=g)
    dataset = TensorDataset(tokens, (tokens.float().mean(1) > 50).long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(BagOfWords())

    # keep the pretrained embeddings
    model.module.embed.weight.requires_grad_(False)  # <- here
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3)

    for epoch in range(2):
        sampler.set_epoch(epoch)
        for tokens, label in loader:
            logits = model(tokens)
            loss = nn.functional.cross_entropy(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} done, loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
