"""Chapter 06's demonstrations: from ddp_workbook.experiments import fully_sharded as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
