# SPDX-License-Identifier: Apache-2.0
"""Files that are larger than a message may be, sent by several senders at once: chunks at work.

    python examples/large_files.py                                       # a broker is started for you
    python examples/large_files.py --service-url pulsar://127.0.0.1:6650 # or any Apache Pulsar

A broker takes messages of up to 5 MiB. A producer with chunking cuts a larger one into pieces, and the consumer puts
them together again: the application sends one message and receives one. Pieces of several senders mix in the topic, and
still every file arrives whole, with its name and its checksum. The last file is refused once and comes again.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
import uuid

from on_a_broker import on_a_broker

from broker_core.client import Client, Consumer, Message

SENDERS = 3
SIZES_MIB = (1, 7, 16)
QUEUE = 20
"""Whole files that the client may hold for us: with large messages the default of 1000 would be much memory."""

LAST_WAIT_S = 60.0
"""How long the next file may take before the example fails."""


def run(service_url: str) -> int:
    """All senders at once; then everything is read."""
    topic = f"files-{uuid.uuid4().hex[:8]}"
    # Subscribed before anything is sent, so that nothing is missed.
    with (
        Client(service_url) as client,
        client.subscribe(
            topic, "archive", type="shared", receiver_queue_size=QUEUE, negative_ack_redelivery_delay_s=0.1
        ) as archive,
    ):
        names = [f"sender-{number}" for number in range(SENDERS)]
        senders = [threading.Thread(target=send_files, args=(client, topic, name)) for name in names]
        for sender in senders:
            sender.start()
        files = receive_files(archive)
        for sender in senders:
            sender.join()
    return report(files)


def send_files(client: Client, topic: str, sender: str) -> None:
    """Some files of different sizes, each with its name and its checksum as properties."""
    # Chunks and batches exclude each other: a batch is many messages in one entry, a chunked message one in many.
    with client.create_producer(topic, chunking_enabled=True, batching_enabled=False) as producer:
        for size_mib in SIZES_MIB:
            content = random.randbytes(size_mib * 1024 * 1024)
            properties = {"name": f"{sender}-{size_mib}-mib", "sha256": hashlib.sha256(content).hexdigest()}
            producer.send(content, properties=properties)


def receive_files(archive: Consumer) -> list[Message]:
    """All files, each once; the last one is refused the first time."""
    files: list[Message] = []
    expected = SENDERS * len(SIZES_MIB)
    while len(files) < expected:
        message = archive.receive(LAST_WAIT_S)
        if len(files) == expected - 1 and not message.redelivery_count:
            archive.negative_acknowledge(message)  # all its chunks come again
            continue
        archive.acknowledge(message)
        files.append(message)
    return files


def report(files: list[Message]) -> int:
    """Say what came; 0 if every file came once and as it was sent."""
    for file in files:
        again = ", the second time" if file.redelivery_count else ""
        print(f"{file.properties['name']}: {len(file.value or b''):,} bytes{again}")
    whole = [file for file in files if hashlib.sha256(file.value or b"").hexdigest() == file.properties["sha256"]]
    is_right = len({file.properties["name"] for file in whole}) == SENDERS * len(SIZES_MIB)
    print("check: passed, every file is whole" if is_right else "check: FAILED", file=sys.stderr)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(on_a_broker("Large files: messages in chunks.", run))
