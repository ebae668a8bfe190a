"""A CPU in place of GPUs: what is written for CUDA and NCCL computes on the CPU over gloo.

For machines without a GPU. Where a program names a GPU, the calls of PyTorch take the CPU instead,
so that ranks send and compute the same; times, memory and rounding are a CPU's. A tensor that is
left on the CPU by mistake is not noticed: all tensors are there.
"""

from manyranks.cpu_for_gpus.install import install, number

__all__ = ["install", "number"]
