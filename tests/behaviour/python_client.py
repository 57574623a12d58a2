# SPDX-License-Identifier: Apache-2.0
"""The official Python client behind the words of ``interface``.

Older ones too: what a behaviour does not ask for is not said to the client, and what the client does not have is a
CannotExpressError.
"""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pulsar

from tests.behaviour.access import Access
from tests.behaviour.interface import (
    EARLIEST,
    LATEST,
    PATIENCE_MS,
    TRANSACTION_MS,
    AnyTransaction,
    CannotExpressError,
    ConsumerChoice,
    Id,
    Outgoing,
    ProducerChoice,
    Received,
    RefusedError,
)
from tests.behaviour.python_schemas import schema_of, text_of, value_of
from tests.behaviour.schemas import SchemaChoice, version_of

ENDS: Final = {EARLIEST: pulsar.MessageId.earliest, LATEST: pulsar.MessageId.latest}
TYPES: Final = {
    "Exclusive": pulsar.ConsumerType.Exclusive,
    "Failover": pulsar.ConsumerType.Failover,
    "Shared": pulsar.ConsumerType.Shared,
    "Key_Shared": pulsar.ConsumerType.KeyShared,
}
COMPRESSIONS: Final = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}


@contextmanager
def _errors() -> Iterator[None]:
    """Turn the client's errors into ours."""
    try:
        yield
    except (pulsar.PulsarException, ValueError) as refused:
        raise RefusedError(type(refused).__name__, str(refused)) from refused
    except (AttributeError, TypeError) as unknown:
        if "module 'pulsar" in str(unknown) or "unexpected keyword" in str(unknown):
            raise CannotExpressError(str(unknown)) from unknown
        raise


class PythonClient:
    def __init__(self, service_url: str, access: Access) -> None:
        self._client = pulsar.Client(
            service_url,
            authentication=_authentication(access),
            operation_timeout_seconds=15,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            tls_trust_certs_file_path=access.trust_certs,
            tls_validate_hostname=access.trust_certs is not None,
        )

    def producer(self, topic: str, choice: ProducerChoice) -> PythonProducer:
        if choice.chunk_bytes is not None:
            raise CannotExpressError("a size of chunks")
        batching_type = pulsar.BatchingType.KeyBased if choice.batching_by_key else pulsar.BatchingType.Default
        options: dict[str, object] = {}
        with _errors():
            if choice.access_mode != "Shared":
                options["access_mode"] = getattr(pulsar.ProducerAccessMode, choice.access_mode)
            producer = self._client.create_producer(
                topic,
                producer_name=choice.name,
                batching_enabled=choice.batching,
                batching_type=batching_type,
                batching_max_publish_delay_ms=60_000,
                chunking_enabled=choice.chunking,
                compression_type=COMPRESSIONS[choice.compression],
                schema=schema_of(choice.schema),
                **options,
            )
        return PythonProducer(producer, choice.schema)

    def consumer(self, topics: Sequence[str], subscription: str, choice: ConsumerChoice) -> PythonConsumer:
        if choice.priority:
            raise CannotExpressError("priority levels")
        if choice.retry:
            raise CannotExpressError("retry topics")
        if choice.ack_timeout_ms is not None and choice.ack_timeout_ms < 10_000:
            raise CannotExpressError("an ack timeout below 10 s")
        with _errors():
            options = self._options(choice)
            consumer = self._client.subscribe(
                re.compile(choice.pattern) if choice.pattern else topics[0] if len(topics) == 1 else list(topics),
                subscription,
                TYPES[choice.type],
                consumer_name=choice.name,
                receiver_queue_size=choice.queue_size,
                is_read_compacted=choice.compacted,
                negative_ack_redelivery_delay_ms=choice.nack_delay_ms,
                pattern_auto_discovery_period=1 if choice.looks else 3600,
                initial_position=getattr(pulsar.InitialPosition, choice.initial_position),
                schema=schema_of(choice.schema),
                **options,
            )
        return PythonConsumer(consumer, choice.queue_size)

    def _options(self, choice: ConsumerChoice) -> dict[str, object]:
        """What not every consumer asks for, or not every client has: without batch index acks it can do."""
        options: dict[str, object] = {}
        if "batch_index_ack_enabled" in inspect.signature(self._client.subscribe).parameters:
            options["batch_index_ack_enabled"] = choice.batch_index_acks
        if choice.ranges is not None or choice.relaxed_order:
            ranges = None if choice.ranges is None else [tuple(each) for each in choice.ranges]
            mode = pulsar.KeySharedMode.AutoSplit if ranges is None else pulsar.KeySharedMode.Sticky
            options["key_shared_policy"] = pulsar.ConsumerKeySharedPolicy(
                mode, allow_out_of_order_delivery=choice.relaxed_order, sticky_ranges=ranges
            )
        if choice.max_redeliver_count is not None:
            options["dead_letter_policy"] = pulsar.ConsumerDeadLetterPolicy(
                choice.max_redeliver_count, choice.dead_letter_topic, choice.dead_letter_subscription
            )
        if choice.ack_timeout_ms is not None:
            options["unacked_messages_timeout_ms"] = choice.ack_timeout_ms
        return options

    def reader(
        self,
        topic: str,
        start: Id | str,
        *,
        inclusive: bool,
        rollback_s: int,
        compacted: bool = False,
        schema: SchemaChoice | None = None,
    ) -> PythonReader:
        if rollback_s:
            raise CannotExpressError("a reader that begins so long ago")
        options: dict[str, object] = {"start_message_id_inclusive": True} if inclusive else {}
        with _errors():
            made = self._client.create_reader(
                topic, _own(start), is_read_compacted=compacted, schema=schema_of(schema), **options
            )
            return PythonReader(made)

    def table_view(self, topic: str, schema: SchemaChoice | None = None) -> PythonTableView:
        with _errors():
            return PythonTableView(self._client.create_table_view(topic, schema=schema_of(schema)))

    def transaction(self, timeout_ms: int = TRANSACTION_MS) -> AnyTransaction:
        raise CannotExpressError("transactions")

    def close(self) -> None:
        with _errors():
            self._client.close()


class PythonProducer:
    def __init__(self, producer: pulsar.Producer, schema: SchemaChoice | None) -> None:
        self._producer = producer
        self._schema = schema
        self.name = str(producer.producer_name())
        self.last_sequence_id = int(producer.last_sequence_id())

    def send(self, message: Outgoing) -> Id:
        with _errors():
            return _id(self._producer.send(value_of(self._schema, message.value), **_fields(message)))

    def send_together(self, messages: Sequence[Outgoing]) -> None:
        results: list[pulsar.Result] = []
        with _errors():
            for message in messages:
                self._producer.send_async(
                    value_of(self._schema, message.value),
                    lambda result, _: results.append(result),
                    **_fields(message),
                )
            self._producer.flush()
        for result in results:
            if result != pulsar.Result.Ok:
                raise RefusedError(str(result), "an asynchronous send failed")

    def close(self) -> None:
        with _errors():
            self._producer.close()


class PythonConsumer:
    def __init__(self, consumer: pulsar.Consumer, queue_size: int) -> None:
        self._consumer = consumer
        self._has_queue = queue_size > 0

    def receive(self, timeout_ms: int) -> Received | None:
        # Without a queue this client receives without a deadline only.
        receive = (lambda: self._consumer.receive(timeout_ms)) if self._has_queue else self._consumer.receive
        return _received(receive)

    def ack(self, message: Received) -> None:
        with _errors():
            self._consumer.acknowledge(message.own)

    def ack_cumulative(self, message: Received) -> None:
        with _errors():
            self._consumer.acknowledge_cumulative(message.own)

    def nack(self, message: Received) -> None:
        self._consumer.negative_acknowledge(message.own)

    def nack_twice(self, message: Received) -> None:
        self.nack(message)
        self.nack(message)

    def reconsume_later(self, message: Received, delay_ms: int, properties: Mapping[str, str]) -> None:
        raise CannotExpressError("reconsume later")

    def reconsume_later_cumulative(self, message: Received, delay_ms: int) -> None:
        raise CannotExpressError("reconsume later")

    def redeliver_all(self) -> None:
        self._consumer.redeliver_unacknowledged_messages()

    def seek(self, target: Id | str | int) -> None:
        with _errors():
            self._consumer.seek(target if isinstance(target, int) else _own(target))

    def pause(self) -> None:
        raise CannotExpressError("pausing without a listener")

    def resume(self) -> None:
        raise CannotExpressError("resuming without a listener")

    def last_message_id(self) -> Id:
        with _errors():
            return _id(self._consumer.get_last_message_id())

    def has_ended(self) -> bool:
        raise CannotExpressError("the end of a topic")

    def unsubscribe(self, *, force: bool = False) -> None:
        if force:
            raise CannotExpressError("unsubscribing by force")
        with _errors():
            self._consumer.unsubscribe()

    def close(self) -> None:
        with _errors():
            self._consumer.close()


class PythonReader:
    def __init__(self, reader: pulsar.Reader) -> None:
        self._reader = reader

    def receive(self, timeout_ms: int = PATIENCE_MS) -> Received | None:
        return _received(lambda: self._reader.read_next(timeout_ms))

    def has_message_available(self) -> bool:
        with _errors():
            return bool(self._reader.has_message_available())

    def close(self) -> None:
        with _errors():
            self._reader.close()


class PythonTableView:
    def __init__(self, view: pulsar.TableView) -> None:
        self._view = view

    def rows(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self._view.for_each(lambda key, value: found.update({key: text_of(value)}))
        return found

    def close(self) -> None:
        self._view.close()


def _authentication(access: Access) -> pulsar.Authentication | None:
    if access.token is not None:
        return pulsar.AuthenticationToken(access.token)
    if access.certificate is not None:
        return pulsar.AuthenticationTLS(access.certificate, access.key)
    if access.user is not None:
        return pulsar.AuthenticationBasic(access.user, access.password)
    return None


def _fields(message: Outgoing) -> dict[str, object]:
    if message.schema is not None:
        raise CannotExpressError("a schema of a single message")
    fields: dict[str, object] = {
        "properties": dict(message.properties) or None,
        "partition_key": message.key,
        "ordering_key": message.ordering_key,
        "sequence_id": message.sequence_id,
        "event_timestamp": message.event_time_ms,
    }
    if message.deliver_after_ms is not None:
        fields["deliver_after"] = datetime.timedelta(milliseconds=message.deliver_after_ms)
    return {name: value for name, value in fields.items() if value is not None}


def _own(target: Id | str) -> object:
    return target.own if isinstance(target, Id) else ENDS[target]


def _id(own: pulsar.MessageId) -> Id:
    return Id(own.ledger_id(), own.entry_id(), own.partition(), own.batch_index(), own)


def _told(message: pulsar.Message, what: str) -> str:
    """What not every version of the client tells of a message."""
    return str(getattr(message, what)()) if hasattr(message, what) else ""


def _received(receive: Callable[[], pulsar.Message]) -> Received | None:
    try:
        message = receive()
    except pulsar.Timeout:
        return None
    return Received(
        value=text_of(message.value()),
        key=message.partition_key() or None,
        ordering_key=_told(message, "ordering_key") or None,
        properties=message.properties(),
        message_id=_id(message.message_id()),
        redelivery_count=message.redelivery_count(),
        publish_time_ms=message.publish_timestamp(),
        event_time_ms=message.event_timestamp(),
        topic=message.topic_name(),
        producer_name=_told(message, "producer_name"),
        own=message,
        data=message.data(),
        schema_version=version_of(message.schema_version().encode()),
    )
