"""Starts the ranks: N processes from a kernel, under torchrun's contract."""
