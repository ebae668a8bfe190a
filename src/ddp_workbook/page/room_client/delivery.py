"""Sends news in the background until the room has them: no page waits for a network or a disk."""

import atexit
import threading
import time
from collections.abc import Callable

FIRST_PAUSE_S, MAX_PAUSE_S = (
    1.0,
    30.0,
)  # seconds until the next try: doubled, up to the second number
MIN_INTERVAL_S = (
    0.05  # seconds at least between two deliveries: what happens meanwhile goes with the next
)
EXIT_WAIT_S = 1.0  # seconds that a kernel waits for the last news as it ends


class BackgroundSender:
    """One thread that calls `send`, which returns a reason to try again, or ""."""

    def __init__(self, send: Callable[[], str]):
        self.send, self.problem = send, ""
        self.condition = threading.Condition()
        self.requests = self.deliveries = 0  # counts: what was asked for last is delivered if equal
        self.thread: threading.Thread | None = None

    def send_soon(self, wait: float) -> str:
        """Send what is there now; after `wait` seconds at most, why it could not be sent, or "".

        While that is not known yet, it is what was last known.
        """
        with self.condition:
            self.requests += 1
            number = self.requests
            if not (self.thread and self.thread.is_alive()):
                self.thread = threading.Thread(target=self.run, daemon=True, name="room")
                self.thread.start()
                atexit.unregister(self.finish)
                atexit.register(self.finish)
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.deliveries >= number, wait)
            return self.problem

    def finish(self) -> None:
        """Wait a little for what is not delivered yet."""
        with self.condition:
            self.condition.wait_for(lambda: self.deliveries >= self.requests, EXIT_WAIT_S)

    def run(self) -> None:
        """Deliver for as long as the process lives."""
        pause = FIRST_PAUSE_S
        while True:
            with self.condition:
                # What failed is tried again after a while, or at once if something is new.
                again = pause if self.problem else None
                self.condition.wait_for(lambda: self.requests > self.deliveries, again)
                number = self.requests
            problem = self.send()
            with self.condition:
                self.problem, self.deliveries = problem, number
                self.condition.notify_all()
            pause = min(MAX_PAUSE_S, 2 * pause) if problem else FIRST_PAUSE_S
            time.sleep(MIN_INTERVAL_S)
