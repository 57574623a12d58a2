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
from broker_core.client.settings.config import SubscriptionType

MESSAGE_S: Final = 0.002
"""What it works on a message."""
QUEUE_SIZE: Final = 50
RECEIVE_S: Final = 0.2
"""How often it looks whether it shall end."""


class Rival:
    """A consumer on a thread of its own."""

    def __init__(self, client: Client, topic: str, subscription: str, type_: SubscriptionType = "shared") -> None:
        self.processed: list[int] = []
        self._consumer = client.subscribe(topic, subscription, type=type_, receiver_queue_size=QUEUE_SIZE)
        self._ending = threading.Event()
        self._progress = threading.Condition()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def wait_until(self, done: Callable[[list[int]], bool], timeout_s: float) -> None:
        """Return when ``done`` holds of what it has processed; TimeoutError if that takes too long."""
        with self._progress:
            if not self._progress.wait_for(lambda: done(self.processed), timeout_s):
                raise TimeoutError(f"after {timeout_s:g} s the rival has processed {len(self.processed)} messages")

    def end(self) -> None:
        """Leave the subscription; what it was given and has not taken goes to others."""
        self._ending.set()
        self._thread.join()
        self._consumer.close()

    def _work(self) -> None:
        while not self._ending.is_set():
            for message in self._consumer.batch_receive(max_messages=20, timeout_s=RECEIVE_S):
                time.sleep(MESSAGE_S)
                with self._progress:
                    self.processed.append(int(message.value or b""))
                    self._progress.notify_all()
                self._consumer.acknowledge(message, wait=True)
