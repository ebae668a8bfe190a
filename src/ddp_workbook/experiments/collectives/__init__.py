"""Chapter 05's demonstrations: from ddp_workbook.experiments import collectives as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
