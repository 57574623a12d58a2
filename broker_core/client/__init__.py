# SPDX-License-Identifier: Apache-2.0
"""A client for our broker and for any Apache Pulsar: asyncio inside (``AsyncClient``), blocking outside (``Client``).

    with Client("pulsar://127.0.0.1:6650") as client:
        with client.create_producer("greetings") as producer:
            producer.send("hello", key="en")

Messages one by one through producers, consumers and readers; whole entries and Arrow record batches through
``read_entries``, ``subscribe_entries`` and ``write_rows``. Errors are those of ``broker_core.base.errors``.

A name is imported when it is first used, so that who needs one module, as Spark's processes that only look at options,
does not load them all.
"""

from typing import TYPE_CHECKING

from broker_core.base.lazy_names import lazy_names
from broker_core.base.positions import MESSAGE_ID_EARLIEST as MESSAGE_ID_EARLIEST
from broker_core.base.positions import MESSAGE_ID_LATEST as MESSAGE_ID_LATEST
from broker_core.base.positions import MessageId as MessageId
from broker_core.base.secret import Secret as Secret

if TYPE_CHECKING:
    from broker_core.client.async_client import AsyncClient as AsyncClient
    from broker_core.client.blocking.blocking_client import Client as Client
    from broker_core.client.blocking.entry_handles import CursorHandle as CursorHandle
    from broker_core.client.blocking.entry_handles import EntryConsumer as EntryConsumer
    from broker_core.client.blocking.entry_handles import EntryReader as EntryReader
    from broker_core.client.blocking.entry_handles import EntryWriter as EntryWriter
    from broker_core.client.blocking.entry_handles import close_all as close_all
    from broker_core.client.blocking.entry_handles import look_at_all as look_at_all
    from broker_core.client.blocking.entry_handles import start_all_acks as start_all_acks
    from broker_core.client.blocking.handles import Consumer as Consumer
    from broker_core.client.blocking.handles import Producer as Producer
    from broker_core.client.blocking.handles import Reader as Reader
    from broker_core.client.blocking.handles import TableView as TableView
    from broker_core.client.blocking.handles import Transaction as Transaction
    from broker_core.client.client_stats import ConsumerStats as ConsumerStats
    from broker_core.client.client_stats import ProducerStats as ProducerStats
    from broker_core.client.columnar.cursor_handle import CursorLook as CursorLook
    from broker_core.client.columnar.cursor_handle import CursorNews as CursorNews
    from broker_core.client.columnar.entry_consumer import Given as Given
    from broker_core.client.columnar.entry_consumer import GivenEntry as GivenEntry
    from broker_core.client.columnar.entry_counting import Counted as Counted
    from broker_core.client.columnar.entry_counting import Span as Span
    from broker_core.client.columnar.probes import Bounds as Bounds
    from broker_core.client.columnar.probes import Edges as Edges
    from broker_core.client.columnar.probes import LastEntry as LastEntry
    from broker_core.client.credentials.authentication import Authentication as Authentication
    from broker_core.client.credentials.authentication import AuthenticationBasic as AuthenticationBasic
    from broker_core.client.credentials.authentication import AuthenticationTls as AuthenticationTls
    from broker_core.client.credentials.authentication import AuthenticationToken as AuthenticationToken
    from broker_core.client.credentials.oauth2 import AuthenticationOAuth2 as AuthenticationOAuth2
    from broker_core.client.messages.file_value import FileValue as FileValue
    from broker_core.client.messages.message import Message as Message
    from broker_core.client.settings.callbacks import ConsumerEventListener as ConsumerEventListener
    from broker_core.client.settings.callbacks import ConsumerInterceptor as ConsumerInterceptor
    from broker_core.client.settings.callbacks import ProducerInterceptor as ProducerInterceptor
    from broker_core.client.settings.config import ClientConfig as ClientConfig
    from broker_core.client.settings.config import ConsumerConfig as ConsumerConfig
    from broker_core.client.settings.config import CursorConfig as CursorConfig
    from broker_core.client.settings.config import EntryConsumerConfig as EntryConsumerConfig
    from broker_core.client.settings.config import EntryReaderConfig as EntryReaderConfig
    from broker_core.client.settings.config import ProducerConfig as ProducerConfig
    from broker_core.client.settings.config import ReaderConfig as ReaderConfig
    from broker_core.client.settings.config import WriterConfig as WriterConfig
    from broker_core.client.settings.policies import DeadLetterPolicy as DeadLetterPolicy
    from broker_core.client.settings.policies import KeySharedPolicy as KeySharedPolicy
    from broker_core.client.settings.policies import RedeliveryBackoff as RedeliveryBackoff
    from broker_core.client.transactions.transaction import AsyncTransaction as AsyncTransaction
    from broker_core.client.transactions.transaction import TransactionState as TransactionState

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "async_client": ["AsyncClient"],
        "blocking.blocking_client": ["Client"],
        "blocking.entry_handles": [
            "CursorHandle",
            "EntryConsumer",
            "EntryReader",
            "EntryWriter",
            "close_all",
            "look_at_all",
            "start_all_acks",
        ],
        "blocking.handles": ["Consumer", "Producer", "Reader", "TableView", "Transaction"],
        "client_stats": ["ConsumerStats", "ProducerStats"],
        "columnar.cursor_handle": ["CursorLook", "CursorNews"],
        "columnar.entry_consumer": ["Given", "GivenEntry"],
        "columnar.entry_counting": ["Counted", "Span"],
        "columnar.probes": ["Bounds", "Edges", "LastEntry"],
        "credentials.authentication": [
            "Authentication",
            "AuthenticationBasic",
            "AuthenticationTls",
            "AuthenticationToken",
        ],
        "credentials.oauth2": ["AuthenticationOAuth2"],
        "messages.file_value": ["FileValue"],
        "messages.message": ["Message"],
        "settings.callbacks": ["ConsumerEventListener", "ConsumerInterceptor", "ProducerInterceptor"],
        "settings.config": [
            "ClientConfig",
            "ConsumerConfig",
            "CursorConfig",
            "EntryConsumerConfig",
            "EntryReaderConfig",
            "ProducerConfig",
            "ReaderConfig",
            "WriterConfig",
        ],
        "settings.policies": ["DeadLetterPolicy", "KeySharedPolicy", "RedeliveryBackoff"],
        "transactions.transaction": ["AsyncTransaction", "TransactionState"],
    },
)
__all__ += ["MESSAGE_ID_EARLIEST", "MESSAGE_ID_LATEST", "MessageId", "Secret"]
