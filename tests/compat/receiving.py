# SPDX-License-Identifier: Apache-2.0
"""Receiving with the official client, with deadlines."""

from collections.abc import Iterable

import pulsar

PATIENCE_MS = 60_000
SILENCE_MS = 300


def receive(consumer: pulsar.Consumer, count: int, *, ack: bool = True) -> list[pulsar.Message]:
    """The next ``count`` messages; fails if they do not come."""
    messages = []
    for _ in range(count):
        message = consumer.receive(PATIENCE_MS)
        if ack:
            consumer.acknowledge(message)
        messages.append(message)
    return messages


def texts(messages: Iterable[pulsar.Message]) -> list[str]:
    """The payloads of ``messages`` as text."""
    return [message.data().decode() for message in messages]


def nothing_comes(consumer: pulsar.Consumer | pulsar.Reader) -> bool:
    """Whether no message arrives within a moment."""
    try:
        if isinstance(consumer, pulsar.Reader):
            consumer.read_next(SILENCE_MS)
        else:
            consumer.receive(SILENCE_MS)
    except pulsar.Timeout:
        return True
    return False


def send_texts(producer: pulsar.Producer, words: Iterable[str]) -> list[pulsar.MessageId]:
    """Send each word and wait for its receipt; the ids."""
    return [producer.send(word.encode()) for word in words]


def send_batch(producer: pulsar.Producer, words: Iterable[str]) -> None:
    """Send words without waiting, so that they may travel in one batch; return when all have their receipt.

    The delay of batches must be long: flushing sends the batch, and a busy machine must not send it before.
    """
    for word in words:
        producer.send_async(word.encode(), None)
    producer.flush()
