"""Bytes a rank and messages a step, by formula and from PyTorch's own sharding, before a run."""
