"""What the pages of chapter 01 say in prose, where no cell of them can show it quietly."""

import difflib
import inspect
import warnings
import weakref

import nbformat
import pytest
import torch
from torch import nn

from ddp_workbook.chapters import data_parallel, single_process
from ddp_workbook.chapters.digits import DigitsDataset, DigitsMLP, batches
from ddp_workbook.page.pages import FOLDER, place_of
