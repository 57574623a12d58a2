# SPDX-License-Identifier: Apache-2.0
"""A client for our broker and for any Apache Pulsar: asyncio inside (``AsyncClient``), blocking outside (``Client``).

    with Client("pulsar://127.0.0.1:6650") as client:
        with client.create_producer("greetings") as producer:
            producer.send("hello", key="en")

Messages one by one through producers, consumers and readers; whole entries and Arrow record batches through
``read_entries``, ``subscribe_entries`` and ``write_rows``. Errors are those of ``broker_core.base.errors``.
"""

from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.base.secret import Secret
from broker_core.client.async_client import AsyncClient
from broker_core.client.blocking.blocking_client import Client
from broker_core.client.blocking.entry_handles import (
    CursorHandle,
    EntryConsumer,
    EntryReader,
    EntryWriter,
    close_all,
    look_at_all,
    start_all_acks,
)
from broker_core.client.blocking.handles import Consumer, Producer, Reader, TableView
from broker_core.client.client_stats import ConsumerStats, ProducerStats
from broker_core.client.columnar.cursor_handle import CursorLook, CursorNews
from broker_core.client.columnar.entry_consumer import Given
from broker_core.client.columnar.entry_counting import Counted, Span
from broker_core.client.columnar.given_entry import GivenEntry
from broker_core.client.columnar.probes import Bounds, Edges, LastEntry
from broker_core.client.credentials.authentication import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTls,
    AuthenticationToken,
)
from broker_core.client.credentials.oauth2 import AuthenticationOAuth2
from broker_core.client.messages.message import Message
from broker_core.client.settings.callbacks import ConsumerEventListener, ConsumerInterceptor, ProducerInterceptor
from broker_core.client.settings.config import (
    ClientConfig,
    ConsumerConfig,
    CursorConfig,
    EntryConsumerConfig,
    EntryReaderConfig,
    ProducerConfig,
    ReaderConfig,
    WriterConfig,
)
from broker_core.client.settings.dead_letter_policy import DeadLetterPolicy
from broker_core.client.settings.key_shared_policy import KeySharedPolicy
from broker_core.client.settings.redelivery_backoff import RedeliveryBackoff

__all__ = [
    "Client",
    "AsyncClient",
    "ClientConfig",
    "ProducerConfig",
    "ConsumerConfig",
    "ReaderConfig",
    "EntryReaderConfig",
    "EntryConsumerConfig",
    "WriterConfig",
    "CursorConfig",
    "DeadLetterPolicy",
    "KeySharedPolicy",
    "RedeliveryBackoff",
    "Authentication",
    "AuthenticationToken",
    "AuthenticationTls",
    "AuthenticationBasic",
    "AuthenticationOAuth2",
    "Secret",
    "Producer",
    "Consumer",
    "Reader",
    "TableView",
    "ProducerStats",
    "ConsumerStats",
    "ProducerInterceptor",
    "ConsumerInterceptor",
    "ConsumerEventListener",
    "Message",
    "MessageId",
    "MESSAGE_ID_EARLIEST",
    "MESSAGE_ID_LATEST",
    "EntryReader",
    "EntryWriter",
    "EntryConsumer",
    "Given",
    "GivenEntry",
    "CursorHandle",
    "CursorLook",
    "CursorNews",
    "look_at_all",
    "start_all_acks",
    "close_all",
    "Bounds",
    "Counted",
    "Edges",
    "Span",
    "LastEntry",
]
