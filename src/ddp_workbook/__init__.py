"""The Distributed PyTorch Workbook: the few names that a notebook uses."""

from ddp_workbook.workbench.launch import launch

__all__ = ["launch"]
