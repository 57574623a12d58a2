# SPDX-License-Identifier: Apache-2.0
"""Clients in other languages behind the words of ``interface``: each in a process that is spoken to in lines of JSON.

Owns the process, matching answers to requests, and the form of both: messages and ids travel as base64, all that the
process made as numbers. A driver answers ``CannotExpress`` to what its client has no words for. It knows nothing of the
languages: ``java_client``, ``go_client`` and ``rust_client`` build the programs.
"""

from __future__ import annotations

import base64
import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from broker_core.wire.commands import read_position
from broker_core.wire.proto.pulsar_api_pb2 import MessageIdData
from tests.behaviour.access import PLAIN, Access
from tests.behaviour.by_hand import Info, ValuesByHand, as_bytes, as_text, on_the_wire, outgoing
from tests.behaviour.interface import (
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
from tests.behaviour.schemas import SchemaChoice, version_of

ANSWER_S: Final = 60.0
"""Longer than any wait that is asked for."""


class Driver:
    """The process of ``command``. Any thread may ask; each waits for its own answer."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log.open("wb")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self, op: str, **request: object) -> Any:
        """The result of one operation. RefusedError: the client failed. CannotExpressError: it has no words for it."""
        number = next(self._numbers)
        answers = self._waiting[number] = queue.SimpleQueue()
        line = json.dumps({"id": number, "op": op, **request}).encode() + b"\n"
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()
        answer = answers.get(timeout=ANSWER_S)
        assert answer is not None, f"the client's process ended during {op}; its log is {self._log.name}"
        if answer.get("error") == "CannotExpress":
            raise CannotExpressError(answer["text"])
        if "error" in answer:
            raise RefusedError(answer["error"], answer["text"])
        return answer["result"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._waiting.pop(answer["id"]).put(answer)
        for left in list(self._waiting.values()):
            left.put(None)

    def end(self) -> None:
        """Nothing of it is kept, so there is nothing to wait for."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()


class DrivenClient:
    """What was made with it ends with it; connections are those of the driver's one client of address and access."""

    def __init__(
        self,
        driver: Driver,
        service_url: str,
        access: Access = PLAIN,
        *,
        transactions: bool = False,
        by_hand: bool = False,
    ) -> None:
        self._driver = driver
        self._by_hand = by_hand
        said = {"url": service_url, "access": access.as_json(), "transactions": transactions}
        self._number: int = driver.ask("client", **said)
        self._made: list[int] = []

    def _make(self, op: str, **request: object) -> Any:
        made = self._driver.ask(op, client=self._number, **request)
        self._made.append(made["object"] if isinstance(made, dict) else made)
        return made

    def producer(self, topic: str, choice: ProducerChoice) -> DrivenProducer:
        made = self._make("producer", topic=topic, **asdict(choice) | self._said(choice.schema))
        return DrivenProducer(self._driver, made, choice.schema if self._by_hand else None)

    def consumer(self, topics: Sequence[str], subscription: str, choice: ConsumerChoice) -> DrivenConsumer:
        said = asdict(choice) | self._said(choice.schema)
        made = self._make("consumer", topics=list(topics), subscription=subscription, **said)
        return DrivenConsumer(self._driver, made, choice.queue_size, choice.schema if self._by_hand else None)

    def _said(self, schema: SchemaChoice | None) -> dict[str, Any]:
        if schema is None or (self._by_hand and schema.type == "BYTES"):
            return {"schema": None}
        return {"schema": asdict(on_the_wire(schema) if self._by_hand else schema)}

    def reader(
        self,
        topic: str,
        start: Id | str,
        *,
        inclusive: bool,
        rollback_s: int,
        compacted: bool = False,
        schema: SchemaChoice | None = None,
    ) -> DrivenReader:
        target = start.own if isinstance(start, Id) else start
        arguments = {"topic": topic, "start": target, "inclusive": inclusive, "rollback_s": rollback_s}
        made = self._make("reader", compacted=compacted, **self._said(schema), **arguments)
        return DrivenReader(self._driver, made, schema if self._by_hand else None)

    def table_view(self, topic: str, schema: SchemaChoice | None = None) -> DrivenTableView:
        return DrivenTableView(self._driver, self._make("table_view", topic=topic, **self._said(schema)))

    def transaction(self, timeout_ms: int = TRANSACTION_MS) -> DrivenTransaction:
        begun = self._driver.ask("transaction", client=self._number, timeout_ms=timeout_ms)
        return DrivenTransaction(self._driver, begun)

    def close(self) -> None:
        made, self._made = self._made, []
        self._driver.ask("close", objects=made)


class DrivenTransaction:
    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number

    def send(self, producer: AnyProducer, message: Outgoing) -> Id:
        assert isinstance(producer, DrivenProducer)
        return producer.send(message, self._number)

    def send_together(self, producer: AnyProducer, messages: Sequence[Outgoing]) -> None:
        assert isinstance(producer, DrivenProducer)
        producer.send_together(messages, self._number)

    def ack(self, consumer: AnyConsumer, message: Received) -> None:
        assert isinstance(consumer, DrivenConsumer)
        consumer.ack(message, self._number)

    def ack_cumulative(self, consumer: AnyConsumer, message: Received) -> None:
        assert isinstance(consumer, DrivenConsumer)
        consumer.ack_cumulative(message, self._number)

    def commit(self) -> None:
        self._driver.ask("commit", transaction=self._number)

    def abort(self) -> None:
        self._driver.ask("abort", transaction=self._number)


class DrivenProducer:
    """``within``: the number of a transaction. ``by_hand``: the schema by which values are made here."""

    def __init__(self, driver: Driver, made: dict[str, Any], by_hand: SchemaChoice | None) -> None:
        self._driver = driver
        self._by_hand = by_hand
        self._number: int = made["object"]
        self.name = str(made["name"])
        self.last_sequence_id = int(made["last_sequence_id"])

    def send(self, message: Outgoing, within: int | None = None) -> Id:
        return _id(self._driver.ask("send", producer=self._number, transaction=within, **self._fields(message)))

    def send_together(self, messages: Sequence[Outgoing], within: int | None = None) -> None:
        several = [self._fields(each) for each in messages]
        self._driver.ask("send_together", producer=self._number, transaction=within, messages=several)

    def _fields(self, message: Outgoing) -> dict[str, object]:
        return _fields(message if self._by_hand is None else outgoing(self._by_hand, message))

    def close(self) -> None:
        self._driver.ask("close", objects=[self._number])


class DrivenConsumer:
    """``within``: the number of a transaction. ``by_hand``: the schema by which values are read here."""

    def __init__(self, driver: Driver, number: int, queue_size: int, by_hand: SchemaChoice | None) -> None:
        self._driver = driver
        self._values = None if by_hand is None else ValuesByHand(by_hand, self._schema)
        self._number = number
        self._has_queue = queue_size > 0

    def _ask(self, op: str, **request: object) -> Any:
        return self._driver.ask(op, consumer=self._number, **request)

    def receive(self, timeout_ms: int) -> Received | None:
        # Without a queue this client receives without a deadline only.
        message = _received(self._ask("receive", timeout_ms=timeout_ms if self._has_queue else None))
        return message if self._values is None else self._values.of(message)

    def _schema(self, topic: str, version: int) -> Info:
        found = self._ask("schema", topic=topic, version=version)
        return Info(found["type"], base64.b64decode(found["data"]), found["properties"])

    def ack(self, message: Received, within: int | None = None) -> None:
        self._ask("ack", message=message.own, transaction=within)

    def ack_cumulative(self, message: Received, within: int | None = None) -> None:
        self._ask("ack_cumulative", message=message.own, transaction=within)

    def nack(self, message: Received) -> None:
        self._ask("nack", message=message.own)

    def nack_twice(self, message: Received) -> None:
        self._ask("nack_twice", message=message.own)

    def reconsume_later(self, message: Received, delay_ms: int, properties: Mapping[str, str]) -> None:
        self._ask("reconsume_later", message=message.own, delay_ms=delay_ms, properties=dict(properties))

    def reconsume_later_cumulative(self, message: Received, delay_ms: int) -> None:
        self._ask("reconsume_later_cumulative", message=message.own, delay_ms=delay_ms)

    def redeliver_all(self) -> None:
        self._ask("redeliver_all")

    def seek(self, target: Id | str | int) -> None:
        if isinstance(target, int):
            self._ask("seek", time_ms=target)
        else:
            self._ask("seek", target=target.own if isinstance(target, Id) else target)

    def pause(self) -> None:
        self._ask("pause")

    def resume(self) -> None:
        self._ask("resume")

    def last_message_id(self) -> Id:
        return _id(self._ask("last_message_id"))

    def has_ended(self) -> bool:
        return bool(self._ask("has_ended"))

    def unsubscribe(self, *, force: bool = False) -> None:
        self._ask("unsubscribe", force=force)

    def close(self) -> None:
        self._driver.ask("close", objects=[self._number])


class DrivenReader:
    def __init__(self, driver: Driver, number: int, by_hand: SchemaChoice | None) -> None:
        self._driver = driver
        self._number = number
        self._values = None if by_hand is None else ValuesByHand(by_hand, None)

    def receive(self, timeout_ms: int = PATIENCE_MS) -> Received | None:
        message = _received(self._driver.ask("read", reader=self._number, timeout_ms=timeout_ms))
        return message if self._values is None else self._values.of(message)

    def has_message_available(self) -> bool:
        return bool(self._driver.ask("has_message_available", reader=self._number))

    def close(self) -> None:
        self._driver.ask("close", objects=[self._number])


class DrivenTableView:
    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number

    def rows(self) -> dict[str, str]:
        found = self._driver.ask("table", view=self._number)
        return {key: base64.b64decode(value).decode() for key, value in found.items()}

    def close(self) -> None:
        self._driver.ask("close", objects=[self._number])


def _fields(message: Outgoing) -> dict[str, object]:
    value = None if message.value is None else base64.b64encode(as_bytes(message.value)).decode()
    return {**asdict(message), "value": value}


def _id(own: str) -> Id:
    parts = MessageIdData.FromString(base64.b64decode(own))
    return Id(*read_position(parts), parts.partition, parts.batch_index, own)


def _received(seen: dict[str, Any] | None) -> Received | None:
    if seen is None:
        return None
    return Received(
        value=as_text(base64.b64decode(seen["value"])),
        key=seen["key"],
        ordering_key=seen.get("ordering_key"),
        properties=seen["properties"],
        message_id=_id(seen["message_id"]),
        redelivery_count=seen.get("redelivery_count", 0),
        publish_time_ms=seen["publish_time_ms"],
        event_time_ms=seen["event_time_ms"],
        topic=seen.get("topic", ""),
        producer_name=seen["producer_name"],
        own=seen["object"],
        data=base64.b64decode(seen.get("data") or ""),
        schema_version=version_of(base64.b64decode(seen.get("schema_version") or "")),
    )
