# SPDX-License-Identifier: Apache-2.0
"""Orders of many customers, worked on by several workers at once, each customer's in order: Key_Shared at work.

    python examples/orders_by_key.py                                       # a broker is started for you
    python examples/orders_by_key.py --service-url pulsar://127.0.0.1:6650 # or any Apache Pulsar

Every customer opens an account, pays in and out, and closes it. The steps of one customer must not overtake each other,
but customers do not wait for each other. So the customer is the key of each message, and the workers share one
subscription of type key_shared: a key is with one worker at a time. Half-way one worker goes home, with work in hand,
and another one comes; the broker moves the keys, and nobody sees a step too early. At the end every account is checked.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter, defaultdict

from on_a_broker import on_a_broker

from broker_core.base.errors import OperationTimeoutError
from broker_core.client import Client, Consumer

CUSTOMERS = 40
STEPS = ("open", "pay in", "pay out", "pay in", "close")
GOES_HOME_AFTER = 60
"""Steps that were done when the first worker leaves."""

LOOK_S = 0.05
"""How long one worker waits before the next one looks for work: here all of them share one thread."""


def run(service_url: str) -> int:
    """Send all steps, let the workers do them, check the accounts."""
    topic = f"bank-{uuid.uuid4().hex[:8]}"
    with Client(service_url) as client:
        workers = {name: new_worker(client, topic, name) for name in ("ann", "ben", "cid")}
        send_orders(client, topic)
        done, by_worker = work(client, topic, workers)
    return report(done, by_worker)


def new_worker(client: Client, topic: str, name: str) -> Consumer:
    """One more consumer of the one subscription. A small queue, so that little is in hand when somebody leaves."""
    return client.subscribe(
        topic, "tellers", type="key_shared", initial_position="earliest", consumer_name=name, receiver_queue_size=10
    )


def send_orders(client: Client, topic: str) -> None:
    """One step of every customer after the other. Batches hold one key each, so that they can be shared out."""
    with client.create_producer(topic, batching_type="key_based") as producer:
        for number, step in enumerate(STEPS):
            for customer in range(CUSTOMERS):
                producer.send_async(json.dumps({"number": number, "step": step}), key=f"customer-{customer}")


def work(client: Client, topic: str, workers: dict[str, Consumer]) -> tuple[dict[str, list[int]], Counter[str]]:
    """Do every step; the steps of each customer as they were done, and how many each worker did."""
    done: dict[str, list[int]] = defaultdict(list)
    by_worker: Counter[str] = Counter()
    while sum(map(len, done.values())) < CUSTOMERS * len(STEPS):
        for name, worker in list(workers.items()):
            try:
                message = worker.receive(LOOK_S)
            except OperationTimeoutError:
                continue
            step = json.loads(message.value or b"")["number"]
            worker.acknowledge(message, wait=True)
            done[str(message.key)].append(step)
            by_worker[name] += 1
        if "ann" in workers and by_worker.total() >= GOES_HOME_AFTER:
            workers.pop("ann").close()
            workers["dan"] = new_worker(client, topic, "dan")
    return done, by_worker


def report(done: dict[str, list[int]], by_worker: Counter[str]) -> int:
    """Say what happened; 0 if every customer's steps were done once and in order."""
    for name, count in sorted(by_worker.items()):
        print(f"{name} did {count} steps")
    wrong = {customer: steps for customer, steps in done.items() if steps != list(range(len(STEPS)))}
    for customer, steps in sorted(wrong.items()):
        print(f"{customer}: {steps}")
    print("check: FAILED" if wrong else f"check: passed, {len(done)} customers, each in order", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(on_a_broker("Orders by customer: many workers, each customer in order.", run))
