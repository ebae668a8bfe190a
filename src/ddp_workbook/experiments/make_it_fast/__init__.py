"""Chapter 10's demonstrations: `from ddp_workbook.experiments import make_it_fast`."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
