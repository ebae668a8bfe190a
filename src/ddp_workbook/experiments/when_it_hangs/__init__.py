"""Chapter 09's demonstrations: from ddp_workbook.experiments import when_it_hangs as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
