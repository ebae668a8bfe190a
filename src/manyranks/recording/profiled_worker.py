"""The part of `timeline` that runs in a rank: torch.profiler around some of the worker's steps."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity

from manyranks.launcher import serialization
from manyranks.launcher.workarounds import stderr_without
from manyranks.network.emulated_work import record_completed_calls


class ProfiledWorker:
    """A worker that leaves a trace of its first `steps` + 1 steps in a file of `folder`.

    A worker that makes fewer, or has no optimizer, is traced to its end.
    """

    def __init__(self, worker: Callable, folder: Path, steps: int):
        self.__wrapped__, self.folder, self.steps = worker, folder, steps
        self.__module__ = getattr(worker, "__module__", "")  # the rank names its program by it

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the worker in this rank, traced."""
        tracer = Tracer(self.folder / f"rank{os.environ['RANK']}.json", self.steps)
        hook = register_optimizer_step_post_hook(lambda *_: tracer.after_step())
        result = None
        try:
            tracer.start()
            result = self.__wrapped__(*args, **kwargs)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):  # sys.exit(0) counts as a return, as in `launch`
                raise
        finally:
            hook.remove()
            tracer.stop()
        serialization.pack_result(result)  # a refusal then names the result itself, as in `launch`
        return result


class Tracer:
    """Profiles until `steps` steps after the first are over, and writes the trace."""

    def __init__(self, file: Path, steps: int):
        self.file, self.steps_left = file, steps + 1
        self.running = False

    def start(self) -> None:
        """Begin."""
        self.offset = time.time_ns() / 1e9 - time.perf_counter()
        self.completed_calls = record_completed_calls()
        gpu = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self.profiler = torch.profiler.profile(activities=[ProfilerActivity.CPU, *gpu])
        with stderr_without(b""):  # its C++ tells of its start and its stop
            self.profiler.start()
        self.running = True

    def after_step(self) -> None:
        """An optimizer has made a step."""
        self.steps_left -= 1
        if self.steps_left == 0:
            self.stop()

    def stop(self) -> None:
        """End, once, and write the file."""
        if not self.running:
            return
        self.running = False
        with stderr_without(b""):
            self.profiler.stop()
        partial = self.file.with_suffix(".partial")
        self.profiler.export_chrome_trace(str(partial))
        content = json.loads(partial.read_text(encoding="utf-8"))
        info = content.setdefault("distributedInfo", {})
        info["rank"] = int(os.environ["RANK"])
        content["traceEvents"] += self._network(content.get("baseTimeNanoseconds", 0))
        partial.write_text(json.dumps(content), encoding="utf-8")
        partial.rename(self.file)

    def _network(self, base: int) -> list[dict]:
        """The calls on the network that was ordered, as spans of threads of their own.

        Spans of a thread must not overlap: Perfetto drops those that do. So calls that are under
        way at the same time have a thread each.
        """
        events = []
        last_ends: list[float] = []  # when the last call of each thread ended
        for kind, start, end, _ in sorted(self.completed_calls, key=lambda call: call.entry_time):
            row = next((n for n, ended in enumerate(last_ends) if ended <= start), len(last_ends))
            last_ends[row:] = [end, *last_ends[row + 1 :]]
            events.append(
                {
                    "ph": "X",
                    "cat": "user_annotation",
                    "name": f"network:{kind}",
                    "pid": os.getpid(),
                    "tid": f"network {row + 1}",
                    "ts": (start + self.offset) * 1e6 - base / 1e3,
                    "dur": (end - start) * 1e6,
                }
            )
        return events
