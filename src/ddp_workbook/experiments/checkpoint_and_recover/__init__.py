"""Chapter 08's demonstrations: `from ddp_workbook.experiments import checkpoint_and_recover`."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
