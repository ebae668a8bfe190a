"""Chapter 11's demonstrations: from ddp_workbook.experiments import model_parallel as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
