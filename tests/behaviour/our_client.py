# SPDX-License-Identifier: Apache-2.0
"""Our client behind the words of ``interface``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker_core.base.errors import OperationTimeoutError, PulsarishError
from broker_core.base.positions import MESSAGE_ID_EARLIEST, MESSAGE_ID_LATEST, MessageId
from broker_core.client import (
    Authentication,
    AuthenticationBasic,
    AuthenticationTls,
    AuthenticationToken,
    Client,
    Consumer,
    DeadLetterPolicy,
    KeySharedPolicy,
    Message,
    Producer,
    Reader,
    TableView,
    Transaction,
)
from tests.behaviour.access import Access
from tests.behaviour.interface import (
    EARLIEST,
    LATEST,
    PATIENCE_MS,
    TRANSACTION_MS,
    AnyConsumer,
    AnyProducer,
    CannotExpressError,
    ConsumerChoice,
    Id,
    Outgoing,
    ProducerChoice,
    Received,
    RefusedError,
)
from tests.behaviour.our_schemas import key_text, schema_of, text_of, value_of
from tests.behaviour.schemas import SchemaChoice

ENDS: Final = {EARLIEST: MESSAGE_ID_EARLIEST, LATEST: MESSAGE_ID_LATEST}
ACCESS_MODES: Final = {
    "Shared": "shared",
    "Exclusive": "exclusive",
    "ExclusiveWithFencing": "exclusive_with_fencing",
    "WaitForExclusive": "wait_for_exclusive",
}


@contextmanager
def _errors() -> Iterator[None]:
    """Turn the client's errors into the suite's."""
    try:
        yield
    except PulsarishError as refused:
        raise RefusedError(type(refused).__name__, str(refused)) from refused


class OurClient:
    def __init__(self, service_url: str, access: Access) -> None:
        with _errors():
            self._client = Client(
                service_url,
                operation_timeout_s=15,
                authentication=_authentication(access),
                tls_trust_certs_file_path=access.trust_certs or "",
            )

    def producer(self, topic: str, choice: ProducerChoice) -> OurProducer:
        options: dict[str, Any] = {"name": choice.name, "compression": choice.compression}
        options |= {"access_mode": ACCESS_MODES[choice.access_mode]}
        options |= {"batching_enabled": choice.batching, "batching_max_publish_delay_s": 60.0}
        if choice.batching_by_key:
            options["batching_type"] = "key_based"
        if choice.chunking:
            options |= {"chunking_enabled": True, "chunk_max_message_size": choice.chunk_bytes or -1}
        with _errors():
            return OurProducer(self._client.create_producer(topic, **options, **_schema(choice.schema)), choice.schema)

    def consumer(self, topics: Sequence[str], subscription: str, choice: ConsumerChoice) -> OurConsumer:
        options: dict[str, Any] = {
            "type": choice.type.lower(),
            "initial_position": choice.initial_position.lower(),
            "consumer_name": choice.name,
            "receiver_queue_size": choice.queue_size,
            "priority_level": choice.priority,
            "read_compacted": choice.compacted,
            "negative_ack_redelivery_delay_s": choice.nack_delay_ms / 1000,
            "batch_index_ack_enabled": choice.batch_index_acks,
            "acknowledgment_group_time_s": 0,
        }
        if choice.ack_timeout_ms is not None:
            options |= {"ack_timeout_s": choice.ack_timeout_ms / 1000, "ack_timeout_tick_s": 0.1}
        if choice.max_redeliver_count is not None:
            options["dead_letter_policy"] = DeadLetterPolicy(
                max_redeliver_count=choice.max_redeliver_count,
                dead_letter_topic=choice.dead_letter_topic,
                initial_subscription_name=choice.dead_letter_subscription,
            )
        if choice.type == "Key_Shared":
            options |= _key_shared_options(choice)
        options |= {"retry_enabled": choice.retry, "pattern_auto_discovery_period_s": 1 if choice.looks else 3600}
        with _errors():
            options |= _schema(choice.schema)
            if choice.pattern is not None:
                made = self._client.subscribe_pattern(choice.pattern, subscription, **options)
            else:
                made = self._client.subscribe(list(topics), subscription, **options)
            return OurConsumer(made, choice.schema)

    def reader(
        self,
        topic: str,
        start: Id | str,
        *,
        inclusive: bool,
        rollback_s: int,
        compacted: bool = False,
        schema: SchemaChoice | None = None,
    ) -> OurReader:
        with _errors():
            made = self._client.create_reader(
                topic,
                _own(start),
                inclusive=inclusive,
                rollback_s=rollback_s,
                read_compacted=compacted,
                **_schema(schema),
            )
            return OurReader(made, schema)

    def table_view(self, topic: str, schema: SchemaChoice | None = None) -> OurTableView:
        with _errors():
            return OurTableView(self._client.create_table_view(topic, **_schema(schema)), schema)

    def transaction(self, timeout_ms: int = TRANSACTION_MS) -> OurTransaction:
        with _errors():
            return OurTransaction(self._client.new_transaction(timeout_ms / 1000))

    def close(self) -> None:
        with _errors():
            self._client.close()


class OurTransaction:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def send(self, producer: AnyProducer, message: Outgoing) -> Id:
        assert isinstance(producer, OurProducer)
        return producer.send(message, self._transaction)

    def send_together(self, producer: AnyProducer, messages: Sequence[Outgoing]) -> None:
        assert isinstance(producer, OurProducer)
        producer.send_together(messages, self._transaction)

    def ack(self, consumer: AnyConsumer, message: Received) -> None:
        assert isinstance(consumer, OurConsumer)
        consumer.ack(message, self._transaction)

    def ack_cumulative(self, consumer: AnyConsumer, message: Received) -> None:
        assert isinstance(consumer, OurConsumer)
        consumer.ack_cumulative(message, self._transaction)

    def commit(self) -> None:
        with _errors():
            self._transaction.commit()

    def abort(self) -> None:
        with _errors():
            self._transaction.abort()


class OurProducer:
    def __init__(self, producer: Producer, schema: SchemaChoice | None) -> None:
        self._producer = producer
        self._schema = schema
        self.name = producer.name
        self.last_sequence_id = producer.last_sequence_id

    def send(self, message: Outgoing, within: Transaction | None = None) -> Id:
        with _errors():
            value = value_of(self._schema, message.value)
            return _id(self._producer.send(value, txn=within, **_fields(message)))

    def send_together(self, messages: Sequence[Outgoing], within: Transaction | None = None) -> None:
        with _errors():
            for message in messages:
                value = value_of(self._schema, message.value)
                self._producer.send_async(value, txn=within, **_fields(message))
            self._producer.flush()

    def close(self) -> None:
        with _errors():
            self._producer.close()


class OurConsumer:
    def __init__(self, consumer: Consumer, schema: SchemaChoice | None) -> None:
        self._consumer = consumer
        self._schema = schema

    def receive(self, timeout_ms: int) -> Received | None:
        return _received(lambda: self._consumer.receive(timeout_ms / 1000), self._schema)

    def ack(self, message: Received, within: Transaction | None = None) -> None:
        with _errors():
            self._consumer.acknowledge(_message(message), wait=within is not None, txn=within)

    def ack_cumulative(self, message: Received, within: Transaction | None = None) -> None:
        with _errors():
            self._consumer.acknowledge_cumulative(_message(message), wait=within is not None, txn=within)

    def nack(self, message: Received) -> None:
        with _errors():
            self._consumer.negative_acknowledge(_message(message))

    def nack_twice(self, message: Received) -> None:
        self.nack(message)
        self.nack(message)

    def reconsume_later(self, message: Received, delay_ms: int, properties: Mapping[str, str]) -> None:
        with _errors():
            self._consumer.reconsume_later(_message(message), delay_ms / 1000, properties)

    def reconsume_later_cumulative(self, message: Received, delay_ms: int) -> None:
        with _errors():
            self._consumer.reconsume_later_cumulative(_message(message), delay_ms / 1000)

    def redeliver_all(self) -> None:
        with _errors():
            self._consumer.redeliver_unacknowledged()

    def seek(self, target: Id | str | int) -> None:
        with _errors():
            self._consumer.seek(target if isinstance(target, int) else _own(target))

    def pause(self) -> None:
        self._consumer.pause()

    def resume(self) -> None:
        self._consumer.resume()

    def last_message_id(self) -> Id:
        with _errors():
            return _id(self._consumer.last_message_id())

    def has_ended(self) -> bool:
        return self._consumer.has_reached_end_of_topic

    def unsubscribe(self, *, force: bool = False) -> None:
        with _errors():
            self._consumer.unsubscribe(force=force)

    def close(self) -> None:
        with _errors():
            self._consumer.close()


class OurReader:
    def __init__(self, reader: Reader, schema: SchemaChoice | None) -> None:
        self._reader = reader
        self._schema = schema

    def receive(self, timeout_ms: int = PATIENCE_MS) -> Received | None:
        return _received(lambda: self._reader.read_next(timeout_ms / 1000), self._schema)

    def has_message_available(self) -> bool:
        with _errors():
            return self._reader.has_message_available()

    def close(self) -> None:
        with _errors():
            self._reader.close()


class OurTableView:
    def __init__(self, view: TableView, schema: SchemaChoice | None) -> None:
        self._view = view
        self._schema = schema

    def rows(self) -> dict[str, str]:
        self._view.refresh()
        rows, schema = self._view.snapshot().items(), self._schema
        return {key: value.decode() if schema is None else text_of(schema, value) for key, value in rows}

    def close(self) -> None:
        self._view.close()


def _authentication(access: Access) -> Authentication | None:
    if access.token is not None:
        return AuthenticationToken(access.token)
    if access.certificate is not None and access.key is not None:
        return AuthenticationTls(access.certificate, access.key)
    if access.user is not None and access.password is not None:
        return AuthenticationBasic(access.user, access.password)
    return None


def _schema(choice: SchemaChoice | None) -> Any:
    return {} if choice is None else {"schema": schema_of(choice)}


def _key_shared_options(choice: ConsumerChoice) -> dict[str, Any]:
    with _errors():
        policy = KeySharedPolicy(
            mode="auto_split" if choice.ranges is None else "sticky",
            sticky_ranges=tuple(choice.ranges or ()),
            allow_out_of_order_delivery=choice.relaxed_order,
        )
    return {"key_shared_policy": policy}


def _fields(message: Outgoing) -> Any:
    if message.schema is not None:
        raise CannotExpressError("a schema of a single message")
    fields: dict[str, object] = {"key": message.key, "sequence_id": message.sequence_id}
    fields["ordering_key"] = None if message.ordering_key is None else message.ordering_key.encode()
    if message.properties:
        fields["properties"] = message.properties
    if message.event_time_ms is not None:
        fields["event_time_ms"] = message.event_time_ms
    if message.deliver_after_ms is not None:
        fields["deliver_at_ms"] = time.time_ns() // 1_000_000 + message.deliver_after_ms
    return fields


def _own(target: Id | str) -> MessageId:
    own = target.own if isinstance(target, Id) else ENDS[target]
    assert isinstance(own, MessageId)
    return own


def _message(message: Received) -> Message:
    assert isinstance(message.own, Message)
    return message.own


def _id(own: MessageId) -> Id:
    return Id(own.ledger, own.entry, own.partition, own.batch_index, own)


def _received(receive: Callable[[], Message], schema: SchemaChoice | None) -> Received | None:
    try:
        message = receive()
    except OperationTimeoutError:
        return None
    ordering_key, data = message.ordering_key, message.value or b""
    with _errors():
        value = data.decode() if schema is None else text_of(schema, message.decoded)
    return Received(
        value=value,
        key=key_text(message.key),
        ordering_key=None if ordering_key is None else ordering_key.decode(),
        properties=message.properties,
        message_id=_id(message.message_id),
        redelivery_count=message.redelivery_count,
        publish_time_ms=message.publish_time_ms,
        event_time_ms=message.event_time_ms,
        topic=message.topic,
        producer_name=message.producer_name,
        own=message,
        data=data,
        schema_version=message.schema_version,
    )
