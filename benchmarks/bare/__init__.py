"""The minimum that starts ranks quickly: multiprocessing's fork server with torch preloaded.

What `launch` adds (streams, verdicts, hang reports, lifelines, safe ports) is missing here, so the
difference is their price. It runs in a separate process, whose fork server knows no workbook.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class BareForkServer:
    """A process that starts ranks when asked; use it as a context manager."""

    def __enter__(self) -> "BareForkServer":
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_) -> None:
        self.process.stdin.close()  # it ends at the end of its input
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def run(self, worker: Callable, *args: Any, ranks: int) -> tuple[float, list]:
        """Seconds from the call to the last result, and the results in rank order.

        Raises RuntimeError if a rank failed, without saying which.
        """
        order = {"worker": [worker.__module__, worker.__name__], "args": args, "ranks": ranks}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a rank failed under the bare fork server, in {worker.__name__}")
        answer = json.loads(answer)
        return answer["seconds"], answer["results"]
