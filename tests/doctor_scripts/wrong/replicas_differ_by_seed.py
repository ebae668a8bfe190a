# detr #297, diverging weights: each rank initialises its own model, only gradients are averaged
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.optim as optim


def average_gradients(model):
    size = float(dist.get_world_size())
    for param in model.parameters():
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)
        param.grad.data /= size


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=3)
        self.fc1 = nn.Linear(6 * 6 * 6, 20)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x):
        x = torch.relu(self.conv1(x)).flatten(1)
        return torch.log_softmax(self.fc2(torch.relu(self.fc1(x))), dim=1)


def run(rank, size):
    torch.manual_seed(1234 + rank)  # <- here
    model = Net()  # <- here
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    g = torch.Generator().manual_seed(0)
    images, target = torch.randn(256, 1, 8, 8, generator=g), torch.arange(256) % 10
    bsz = 64 // size
    for epoch in range(2):
        order = torch.randperm(256, generator=g)[rank::size]
        epoch_loss = 0.0
        for idx in order.split(bsz):
            optimizer.zero_grad()
            loss = nn.functional.nll_loss(model(images[idx]), target[idx])
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()  # <- here
        print("Rank", rank, ", epoch", epoch, ":", epoch_loss)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    dist.destroy_process_group()
