"""Chapter 07's demonstrations: from ddp_workbook.experiments import many_machines as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
