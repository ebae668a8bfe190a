"""`record_collectives`: what really went over the wire while a worker ran, as a table."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from ddp_workbook.workbench import launch
from ddp_workbook.workbench.operations import FIELDS
from ddp_workbook.workbench.parcels import Call
from ddp_workbook.workbench.wire import Recorded
