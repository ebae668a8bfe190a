"""Chapter 04's demonstrations: from ddp_workbook.experiments import samplers as demos."""

from ddp_workbook.experiments import subjects

__getattr__ = subjects(__name__)
