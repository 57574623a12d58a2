# SPDX-License-Identifier: Apache-2.0
"""An ordinary consumer of the subscription that a query shares, for rigs: what it takes it has processed and acked.

It is slower than a query, so that both have work, and knows nothing of the query.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from broker_core.client import Client

MESSAGE_S: Final = 0.002
"""What it works on a message."""
QUEUE_SIZE: Final = 50
RECEIVE_S: Final = 0.2
"""How often it looks whether it shall end."""


class Rival:
    """A consumer on a thread of its own."""

    def __init__(self, client: Client, topic: str, subscription: str, at_first: int) -> None:
        """``at_first``: how many messages it processes before ``go_on``, so that a slow query finds some too."""
        self.processed: list[int] = []
        self._consumer = client.subscribe(topic, subscription, type="shared", receiver_queue_size=QUEUE_SIZE)
        self._at_first = at_first
        self._may_go_on = threading.Event()
        self._ending = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def wait_until(self, done: Callable[[list[int]], bool], timeout_s: float) -> None:
        """Return when ``done`` holds of what it has processed; TimeoutError if that takes too long."""
        with self._progress:
            if not self._progress.wait_for(lambda: done(self.processed), timeout_s):
                raise TimeoutError(f"after {timeout_s:g} s the rival has processed {len(self.processed)} messages")

    def go_on(self) -> None:
        """Process all that comes from now on."""
        self._may_go_on.set()

    def end(self) -> None:
        """Leave the subscription; what it was given and has not taken goes to others."""
        self._may_go_on.set()
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _work(self) -> None:
        while not self._ending.is_set():
            if len(self.processed) >= self._at_first and not self._may_go_on.wait(RECEIVE_S):
                continue
            for message in self._consumer.batch_receive(max_messages=20, timeout_s=RECEIVE_S):
                time.sleep(MESSAGE_S)
                with self._progress:
                    self.processed.append(int(message.value or b""))
                    self._progress.notify_all()
                self._consumer.acknowledge(message, wait=True)
