"""A worker's file that never ends to be imported in a rank, though the kernel has imported it."""

import os
import time

while os.environ.get("RANK"):
    time.sleep(0.01)


def worker():
    return "never reached"
