"""`play`: controls that real ranks answer with a new picture.

A change starts a thread which launches the ranks and draws, so the kernel stays free for the next
change. The latest change wins: it stops the ranks of the one before.
"""

import html
import io
import os
import re
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
from IPython import get_ipython

from ddp_workbook.page.controls import control, text_of
from manyranks.errors import LaunchInterrupted, WorkbookError
from manyranks.figures.player import player
from manyranks.figures.style import Picture, style
from manyranks.launcher import preconditions
from manyranks.launcher.calls import call_of
from manyranks.launcher.hang_detection import HangLimits
from manyranks.launcher.launch import run_ranks

RECORD = "DDP_WORKBOOK_STILLS"  # set by whoever makes pages to read: they have no kernel to ask
TIMEOUT_S = 60.0  # seconds until a run is given up for which nothing proves that it hangs
MAX_LINES = 20  # printed lines that are shown
ROW = ipywidgets.Layout(flex_flow="row wrap", align_items="center", grid_gap="0.2em 2em")
REPORT = (
    "border-left:4px solid #c30c45; padding-left:0.6em; margin:0.3em 0; "
    "white-space:pre-wrap; word-break:normal; overflow-wrap:anywhere"  # JupyterLab breaks words
