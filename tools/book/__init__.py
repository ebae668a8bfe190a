"""`make book`: every notebook executed, as a site to read without a network, in build/book."""

import nbformat

from ddp_workbook.page.pages import all_pages
from ddp_workbook.workshop.execution import begin_with, copy_layout, errors, execute
from tools.book.page import page, title
from tools.set_up import ROOT

NOTEBOOKS = all_pages()
__all__ = [
    "NOTEBOOKS",
    "ROOT",
    "begin_with",
    "copy_layout",
    "errors",
    "execute",
    "nbformat",
    "page",
    "title",
]
