# SPDX-License-Identifier: Apache-2.0
"""Reminders that come when they are due, each once, after a restart too: delayed delivery at work.

    python examples/reminders.py                                       # a broker is started for you
    python examples/reminders.py --service-url pulsar://127.0.0.1:6650 # or any Apache Pulsar

Each reminder is a message with the time from which the broker may deliver it. The broker stores it at once and keeps it
back, so nobody needs a timer, a table of jobs or a process that stays alive. Here reminders are written in any order,
the reader is away for a moment, and all come: none before its time, each once.

A broker may be told to be exact (isDelayedDeliveryDeliverAtTimeStrict). Otherwise it may deliver up to a tick, one
second, early and so saves work; the example allows for that. Those that fall due within one tick come together, in no
order.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from typing import NamedTuple

from on_a_broker import on_a_broker

from broker_core.client import Client

REMINDERS = 12
FIRST_S, LAST_S = 2.0, 5.0
EARLY_S = 1.6
"""A tick of a second and the step to which the broker rounds times, with the default settings."""

LAST_WAIT_S = 60.0
"""How long the next reminder may take before the example fails."""


class Came(NamedTuple):
    """One reminder, and how long after its time it came, in seconds; below zero: before it."""

    text: str
    late_s: float


def run(service_url: str) -> int:
    """Write, go away, come back, wait."""
    topic = f"reminders-{uuid.uuid4().hex[:8]}"
    with Client(service_url) as client:
        # Delays need a subscription that may deliver out of order: shared or key_shared.
        client.subscribe(topic, "me", type="shared").close()
        write_reminders(client, topic)
        came = read_reminders(client, topic)
    return report(came)


def write_reminders(client: Client, topic: str) -> None:
    """In no order, spread over the next seconds; the time is a property too, for the check."""
    step_s = (LAST_S - FIRST_S) / (REMINDERS - 1)
    delays = [FIRST_S + number * step_s for number in range(REMINDERS)]
    random.shuffle(delays)
    with client.create_producer(topic) as producer:
        for delay_s in delays:
            due_ms = round((time.time() + delay_s) * 1000)
            producer.send(f"reminder for {delay_s:.1f} s", deliver_at_ms=due_ms, properties={"due": str(due_ms)})


def read_reminders(client: Client, topic: str) -> list[Came]:
    """All of them, as they come."""
    came: list[Came] = []
    with client.subscribe(topic, "me", type="shared") as consumer:
        while len(came) < REMINDERS:
            message = consumer.receive(LAST_WAIT_S)
            late_s = time.time() - int(message.properties["due"]) / 1000
            came.append(Came((message.value or b"").decode(), late_s))
            consumer.acknowledge(message)
    return came


def report(came: list[Came]) -> int:
    """Say what came and when; 0 if every reminder came once and none too early."""
    for each in came:
        print(f"{each.text}: {abs(each.late_s):.2f} s {'after' if each.late_s >= 0 else 'before'} its time")
    is_right = len({each.text for each in came}) == REMINDERS and min(each.late_s for each in came) >= -EARLY_S
    print("check: passed, each came once and in time" if is_right else "check: FAILED", file=sys.stderr)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(on_a_broker("Reminders: messages that come when they are due.", run))
