"""Chapter 00's demonstrations: from ddp_workbook.experiments import start_here as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
