"""Chapter 01's demonstrations: from ddp_workbook.experiments import data_parallel as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
