"""Chapter 03: its worker against one process, and what its pages say."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
import torch
import torch.distributed as dist
from torch.distributed.run import get_args_parser

from ddp_workbook import launch
from ddp_workbook.chapters import process_groups, single_process
from ddp_workbook.experiments.process_groups import groups, meshes, nodes, one_rank, rendezvous
from manyranks.diagnostics.evidence import State
from manyranks.diagnostics.mismatches import mismatches
from manyranks.diagnostics.positions import Position
