# SPDX-License-Identifier: Apache-2.0
"""Orders of which some cannot be processed yet, and some never: retry topic and dead letter topic at work.

    python examples/poison_messages.py                                       # a broker is started for you
    python examples/poison_messages.py --service-url pulsar://127.0.0.1:6650 # or any Apache Pulsar

Three things can happen to an order. A good one is acknowledged. One whose customer's bank does not answer is put into
the retry topic by ``reconsume_later`` and tried again after a pause, without holding up the others. One that cannot be
read at all is negatively acknowledged; after two redeliveries the client moves it to the dead letter topic, where it
waits for a human being, with a note of where it came from. At the end everything is counted: nothing is lost.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter

from on_a_broker import on_a_broker

from broker_core.client import Client, Consumer, DeadLetterPolicy, Message

ORDERS = 60
REDELIVERIES = 2
BANK_PAUSE_S = 0.2
LAST_WAIT_S = 60.0
"""How long the next message may take before the example fails."""


class BankBusyError(Exception):
    """The bank does not answer now, and may a moment later."""


def run(service_url: str) -> int:
    """Send orders, process them, look at what is left."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    policy = DeadLetterPolicy(max_redeliver_count=REDELIVERIES, initial_subscription_name="support")
    with Client(service_url) as client:
        consumer = client.subscribe(
            topic,
            "billing",
            type="shared",
            initial_position="earliest",
            retry_enabled=True,
            dead_letter_policy=policy,
            negative_ack_redelivery_delay_s=0.2,
        )
        poison = send_orders(client, topic)
        shown = process(consumer, poison)
        letters = read_dead_letters(client, f"{topic}-billing-DLQ", poison)
    return report(poison, shown, letters)


def send_orders(client: Client, topic: str) -> int:
    """All orders, every tenth of them unreadable; returns how many are."""
    with client.create_producer(topic) as producer:
        for number in range(ORDERS):
            order = json.dumps({"order": number, "amount": 10 + number})
            is_broken = number % 10 == 3
            # Cut off in the middle, it is no JSON any more: nobody will ever read it.
            producer.send_async(order[:-5] if is_broken else order, key=f"customer-{number % 7}")
    return len(range(3, ORDERS, 10))


def process(consumer: Consumer, poison: int) -> Counter[str]:
    """Work until every order is paid or given up; counts what happened on the way."""
    shown: Counter[str] = Counter()
    # A broken order is shown once and then as often as it is redelivered, before it leaves for the dead letter topic.
    while shown["paid"] < ORDERS - poison or shown["could not be read"] < poison * (REDELIVERIES + 1):
        message = consumer.receive(LAST_WAIT_S)
        try:
            pay(message)
        except BankBusyError:
            consumer.reconsume_later(message, BANK_PAUSE_S, {"reason": "bank busy"})
            shown["tried again later"] += 1
        except ValueError:
            consumer.negative_acknowledge(message)
            shown["could not be read"] += 1
        else:
            consumer.acknowledge(message)
            shown["paid"] += 1
    return shown


def pay(message: Message) -> None:
    """Read and pay one order. ValueError if it is none; every sixth finds the bank busy, twice."""
    number = json.loads(message.value or b"")["order"]
    if number % 6 == 0 and int(message.properties.get("RECONSUMETIMES", "0")) < 2:
        raise BankBusyError


def read_dead_letters(client: Client, topic: str, expected: int) -> list[Message]:
    """Dead letters, as the support team finds them: the subscription was made with the topic, so nothing is missed."""
    letters: list[Message] = []
    with client.subscribe(topic, "support") as consumer:
        while len(letters) < expected:
            letters.append(consumer.receive(LAST_WAIT_S))
            consumer.acknowledge(letters[-1])
    return letters


def report(poison: int, shown: Counter[str], letters: list[Message]) -> int:
    """Say what happened; 0 if every order ended in exactly one place."""
    for what, count in sorted(shown.items()):
        print(f"{count:4} {what}")
    print(f"{len(letters):4} dead letters:")
    for letter in letters:
        value, origin = (letter.value or b"").decode(), letter.properties
        print(f"     {value:30} first seen as {origin['ORIGIN_MESSAGE_ID']} of {origin['REAL_TOPIC']}")
    is_right = len({letter.value for letter in letters}) == poison == len(letters)
    print("check: passed, nothing is lost and nothing is twice" if is_right else "check: FAILED", file=sys.stderr)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(on_a_broker("Retries and dead letters: what happens to orders that fail.", run))
