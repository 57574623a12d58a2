# SPDX-License-Identifier: Apache-2.0
"""A client for our broker and for any Apache Pulsar: asyncio inside (``AsyncClient``), blocking outside (``Client``).

    with Client("pulsar://127.0.0.1:6650") as client:
        with client.create_producer("greetings") as producer:
            producer.send("hello", key="en")

Messages one by one through producers, consumers and readers; whole entries and Arrow record batches through
``read_entries`` and ``write_rows``. Errors are those of ``broker_core.base.errors``.
"""

from broker_core.client.async_client import AsyncClient
from broker_core.client.blocking import Client
from broker_core.client.blocking_handles import Consumer, CursorHandle, EntryReader, EntryWriter, Producer, Reader
from broker_core.client.config import ClientConfig, ConsumerConfig, ProducerConfig
from broker_core.client.message import Message
from broker_core.client.probes import LastEntry

__all__ = [
    "Client",
    "AsyncClient",
    "ClientConfig",
    "ProducerConfig",
    "ConsumerConfig",
    "Producer",
    "Consumer",
    "Reader",
    "Message",
    "EntryReader",
    "EntryWriter",
    "CursorHandle",
    "LastEntry",
]
