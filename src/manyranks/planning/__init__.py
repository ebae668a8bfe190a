"""Bytes per rank and messages per step before a run, by formula and from PyTorch's sharding."""
