# SPDX-License-Identifier: Apache-2.0
"""A producer of the kill rig that has little patience, on a topic with deduplication.

When it does not know what became of a message it makes a new producer of the same name and sends everything from that
message on once more, and some that it had confirmed before, under the same sequence ids, as an application would that
was killed itself. A sequence id is the number of its message. A later message that is stored before an earlier one
would bar the way for that, so its producers stop behind a message that failed: this thread may be held up for longer
than its patience between looking for failures and sending.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from tests.kill.history import Message, Slot
from tests.kill.producing import BURST_MAX, Production
from tests.kill.senders import OpenSender, Sender
from tests.kill.shared_state import Phase
from tests.kill.workload import encode

_PATIENCE_S: Final = 0.3
_PAUSE_IN_BURST_S: Final = 0.004


class ResendingProduction(Production):
    """Everything that it sends is confirmed in the end."""

    def run(self, open_sender: OpenSender) -> None:
        confirmed = 0
        while self._state.phase == Phase.RUN or confirmed < self._sent:
            first = max(0, confirmed - self._dice.randint(0, BURST_MAX))
            sender = self.open_at(open_sender, first)
            confirmed = self._send_until_unknown(sender, first)
            sender.close()

    def open_at(self, open_sender: OpenSender, first: int) -> Sender:
        """A new producer of the name that may send from message ``first`` on."""
        options = {"send_timeout_s": _PATIENCE_S, "stop_after_failure": True, **self._plan.options}
        options["initial_sequence_id"] = first - 1
        return self._open(open_sender, replace(self._plan, options=options))

    def _send_until_unknown(self, sender: Sender, first: int) -> int:
        """Send from ``first`` on; returns up to where everything is confirmed."""
        while self._state.phase == Phase.RUN or first < self._sent:
            count = self._dice.randint(1, BURST_MAX)
            unknown = self.send_burst(sender, first, count)
            if unknown:
                return min(unknown)
            first += count
            time.sleep(self._plan.pause_s)
        return first

    def send_burst(self, sender: Sender, first: int, count: int) -> list[int]:
        """Send messages ``first`` and so on; returns those of which it is unknown whether they are stored."""
        unknown: list[int] = []
        self._sent = max(self._sent, first + count)
        for number in range(first, first + count):
            self.send_again(sender, Message(self._plan.name, number), unknown)
            time.sleep(_PAUSE_IN_BURST_S)
        self._wait_for_outcomes()
        self._unknown += unknown
        return unknown

    def send_again(self, sender: Sender, message: Message, unknown: list[int]) -> None:
        def on_receipt(topic: str, slot: Slot) -> None:
            self._confirmed(topic, message, slot)
            self._room.release()

        def on_unknown() -> None:
            unknown.append(message.number)
            self._room.release()

        self._room.acquire()
        sender.send(encode(message), {"sequence_id": message.number}, on_receipt, on_unknown)
