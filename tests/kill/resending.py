# SPDX-License-Identifier: Apache-2.0
"""A producer of the kill rig that has little patience, on a topic with deduplication.

When it does not know what became of a message it makes a new producer of the same name and sends everything from that
message on once more, and some that it had confirmed before, under the same sequence ids, as an application would that
was killed itself. A sequence id is the number of its message. It sends in bursts that are shorter than its patience,
and begins the next one only when every message of the last is confirmed: a later message that is stored before an
earlier one would bar the way for that.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from broker_core.testing.history import Message, Slot
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
            options = {"initial_sequence_id": first - 1, "send_timeout_s": _PATIENCE_S, **self._plan.options}
            sender = self._open(open_sender, replace(self._plan, options=options))
            confirmed = self._send_until_unknown(sender, first)
            sender.close()

    def _send_until_unknown(self, sender: Sender, first: int) -> int:
        """Send from ``first`` on; returns up to where everything is confirmed."""
        while self._state.phase == Phase.RUN or first < self._sent:
            reached, unknown = self._send_burst(sender, first, self._dice.randint(1, BURST_MAX))
            if unknown:
                return min(unknown)
            first = reached
            time.sleep(self._plan.pause_s)
        return first

    def _send_burst(self, sender: Sender, first: int, count: int) -> tuple[int, list[int]]:
        """Up to which number it was sent, and those of which it is unknown whether they are stored."""
        unknown: list[int] = []
        number, began = first, time.monotonic()
        while number < first + count and time.monotonic() - began < _PATIENCE_S / 2:
            self._send_again(sender, Message(self._plan.name, number), unknown)
            number += 1
            time.sleep(_PAUSE_IN_BURST_S)
        self._sent = max(self._sent, number)
        self._wait_for_outcomes()
        return number, unknown

    def _send_again(self, sender: Sender, message: Message, unknown: list[int]) -> None:
        def on_receipt(topic: str, slot: Slot) -> None:
            self._confirmed(topic, message, slot)
            self._room.release()

        def on_unknown() -> None:
            unknown.append(message.number)
            self._room.release()

        self._room.acquire()
        sender.send(encode(message), {"sequence_id": message.number}, on_receipt, on_unknown)
