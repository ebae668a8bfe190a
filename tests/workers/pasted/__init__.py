"""Workers in the shapes that people paste first: written for mp.spawn, or for a port of their own.

The shapes are those of PyTorch's tutorials and of published courses; the code is our own.
"""
