"""Chapter 03's demonstrations: from ddp_workbook.experiments import process_groups as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
