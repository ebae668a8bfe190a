"""Chapter 02's demonstrations: from ddp_workbook.experiments import distributed_data_parallel."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
