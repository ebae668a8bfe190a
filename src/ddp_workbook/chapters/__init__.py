"""The workers: one file a chapter, plain PyTorch, read from top to bottom, run by one command."""
