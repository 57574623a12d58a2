# SPDX-License-Identifier: Apache-2.0
"""Schemas by raw frames: PRODUCER, SUBSCRIBE, GET_SCHEMA, GET_OR_CREATE_SCHEMA, at once, large, and after a kill."""

from __future__ import annotations

import json
import select
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire import commands
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata, Schema
from tests.schemas.infos import INT32, STRING, avro, key_value
from tests.server.schema_client import INCOMPATIBLE, NOT_FOUND, SchemaClient, code_of, on_wire, version_of
from tests.server.transaction_client import TransactionClient, send_frame

A, B = on_wire(avro("a")), on_wire(avro("a", "b=0"))
BAD = on_wire(avro("a", "x"))
BYTES = on_wire(SchemaInfo(SchemaType.BYTES))
AUTO_CONSUME = on_wire(SchemaInfo(SchemaType.AUTO_CONSUME))


def bytes_of(version: int) -> bytes:
    return version.to_bytes(8, "big")


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[SchemaClient]:
    with SchemaClient(broker.service_url) as connected:
        yield connected


def test_producers_are_told_their_version(client: SchemaClient, topic: str) -> None:
    """7.7, 10.10, 10.13, 10.14: 0, 1, the first again; an empty one without a schema, and again when they ask again."""
    assert [version_of(client.producer(topic, each)) for each in (A, B, A, None, BYTES)] == [0, 1, 0, None, None]
    assert [version_of(client.producer(topic, each, 7)) for each in (B, B, None)] == [1, 1, 1]


def test_small_schema_does_not_wait_for_large_ones(client: SchemaClient, broker: RunningBroker, topic: str) -> None:
    """10.21: it is answered while they are parsed, whose clients came before."""
    large = avro("a", *({"name": f"f{number}", "type": "int", "default": 0} for number in range(15_000)))
    must_succeed(client.producer(f"{topic}-large"))
    must_succeed(client.producer(f"{topic}-small"))
    with SchemaClient(broker.service_url) as other:
        other.tell(other.producer_command(f"{topic}-large", on_wire(large), 1))
        time.sleep(0.05)  # it has come
        assert version_of(client.producer(f"{topic}-small", A)) == 0
        assert select.select([other.socket], [], [], 0)[0] == []
        assert version_of(other.next_command()) == 0


def test_refused_producer_is_none_and_adds_nothing(client: SchemaClient, topic: str, http: httpx.Client) -> None:
    """10.13, 10.18: I10, neither if the schema is refused nor if the producer is, and the text says why."""
    must_succeed(client.producer(topic, A))
    refused = client.producer(topic, BAD, 9)
    assert code_of(refused) == INCOMPATIBLE
    assert "not compatible with version 0 by FULL: the new schema cannot read older data: x: " in refused.error.message
    name = topic.replace("://", "/")
    assert len(http.get(f"/{name}/stats").json()["publishers"]) == 1
    assert http.post(f"/{name}/maxProducers", json=1).status_code == 204
    assert code_of(client.producer(topic, B)) not in (0, INCOMPATIBLE)
    assert code_of(client.get(topic, bytes_of(1))) == NOT_FOUND


@pytest.mark.parametrize(
    "schema",
    [
        on_wire(SchemaInfo(SchemaType.AVRO, b"{")),
        on_wire(SchemaInfo(SchemaType.INT8, b"x")),
        AUTO_CONSUME,
        Schema(name="", schema_data=b""),
        Schema(name="", schema_data=b"", type=Schema.String, properties=[{"key": "a", "value": ""}] * 2),
    ],
)
def test_impossible_schemas_are_refused_and_the_connection_stays(
    client: SchemaClient, topic: str, schema: Schema
) -> None:
    """10.2, 10.3: with the code of an incompatible one, by each command."""
    assert code_of(client.producer(topic, schema)) == INCOMPATIBLE
    if schema is not AUTO_CONSUME:
        assert code_of(client.consumer(topic, schema)) == INCOMPATIBLE
    assert code_of(client.get_or_create(topic, schema)) == INCOMPATIBLE
    assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_unknown_type_number_is_refused(client: SchemaClient, topic: str) -> None:
    """10.2: S-TYPE-3, what a newer client sends; a negative one is none."""
    number = b"\x63"  # 99
    command = client.producer_command(topic, Schema(name="", schema_data=b"", type=Schema.Json), 1)
    sent = command.SerializeToString().replace(b"\x20\x02", b"\x20" + number)
    assert sent != command.SerializeToString()
    client.socket.sendall((len(sent) + 4).to_bytes(4, "big") + len(sent).to_bytes(4, "big") + sent)
    assert code_of(client.next_command()) == INCOMPATIBLE
    assert client.ask(commands.ping()).type == BaseCommand.PONG


def test_first_consumer_brings_the_schema_and_others_are_compared(client: SchemaClient, topic: str) -> None:
    """10.15: S-CON-3, one that takes any is no obstacle, nor held to anything."""
    must_succeed(client.consumer(topic, AUTO_CONSUME))
    assert code_of(client.get(topic)) == NOT_FOUND
    must_succeed(client.consumer(topic, A))
    assert client.get(topic).getSchemaResponse.schema_version == bytes_of(0)
    for schema, code in ((A, 0), (B, 0), (BAD, INCOMPATIBLE), (on_wire(STRING), INCOMPATIBLE), (None, 0), (BYTES, 0)):
        assert code_of(client.consumer(topic, schema)) == code
    assert code_of(client.get(topic, bytes_of(1))) == NOT_FOUND


def test_consumer_of_a_used_topic_without_a_schema_is_refused(client: SchemaClient, topic: str) -> None:
    """10.15: S-CON-5; a consumer without a schema makes it a used one, and is let in itself."""
    must_succeed(client.consumer(topic))
    refused = client.consumer(topic, A)
    assert code_of(refused) == INCOMPATIBLE
    assert "active topic with empty(BYTES) schema: new schema type AVRO" in refused.error.message


def test_schema_is_given_out_as_it_came(client: SchemaClient, topic: str) -> None:
    """10.16, 10.1: type, data and properties; the name is that of the topic; of a partition as of the whole."""
    schema = on_wire(key_value(STRING, INT32, "SEPARATED"))
    must_succeed(client.producer(topic, schema))
    for name in (topic, f"{topic}-partition-7"):
        found = client.get(name).getSchemaResponse
        assert found.schema_version == bytes_of(0)
        assert found.schema.name == topic.removeprefix("persistent://")
        found.schema.name = schema.name
        assert found.schema == schema


def test_version_is_eight_bytes(client: SchemaClient, topic: str) -> None:
    """10.16: S-VER, the first eight of more; fewer are an answer and not the end; absent is the last one."""
    must_succeed(client.producer(topic, A))
    must_succeed(client.producer(topic, B))
    assert client.get(topic).getSchemaResponse.schema_version == bytes_of(1)
    assert client.get(topic, bytes_of(0) + bytes(56)).getSchemaResponse.schema.schema_data == A.schema_data
    for version, text in ((b"", "Empty schema version"), (b"\0" * 7, "Malformed schema version")):
        answer = client.get(topic, version)
        assert code_of(answer) == INCOMPATIBLE
        assert text in answer.getSchemaResponse.error_message
    for missing in (bytes_of(2), b"\xff" * 8, b"\x7f" + b"\xff" * 7):
        assert code_of(client.get(topic, missing)) == NOT_FOUND
    assert code_of(client.get("persistent://public/nowhere/t")) == NOT_FOUND


def test_old_versions_are_given_to_who_has_messages(client: SchemaClient, topic: str, http: httpx.Client) -> None:
    """10.12, 10.11: S-DEL-4, after a deletion by their number, and not otherwise."""
    must_succeed(client.producer(topic, A))
    path = f"/schemas/{topic.removeprefix('persistent://')}/schema"
    assert http.delete(path).json() == {"version": 1}
    assert code_of(client.get(topic)) == NOT_FOUND
    assert code_of(client.get(topic, bytes_of(1))) == NOT_FOUND
    assert client.get(topic, bytes_of(0)).getSchemaResponse.schema.schema_data == A.schema_data
    assert http.get(f"{path}/0").status_code == 404
    assert version_of(client.producer(topic, on_wire(STRING))) == 2


def test_schemas_of_single_messages_are_made_for_topics_that_exist(client: SchemaClient, topic: str) -> None:
    """10.17: as a producer's, and no topic is made."""
    assert code_of(client.get_or_create(topic, A)) == NOT_FOUND
    must_succeed(client.producer(topic))
    made = client.get_or_create(topic, A).getOrCreateSchemaResponse
    assert made.schema_version == bytes_of(0)
    assert client.get_or_create(topic, BYTES).getOrCreateSchemaResponse.schema_version == b""
    assert code_of(client.get_or_create(topic, BAD)) == INCOMPATIBLE


def test_clients_at_once_make_one_version(broker: RunningBroker, topic: str) -> None:
    """10.10: S-RACE-1, 64 producers of eight connections."""
    found: list[int | None] = []

    def connect() -> None:
        with SchemaClient(broker.service_url) as client:
            client.tell(*(client.producer_command(topic, A, number) for number in range(8)))
            found.extend([version_of(client.next_command()) for _ in range(8)])

    threads = [threading.Thread(target=connect) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [0] * 64


def test_what_follows_a_schema_waits_for_it(client: SchemaClient, topic: str) -> None:
    """10.21: commands of one client are acted on in their order, whatever takes long."""
    client.tell(
        client.producer_command(topic, on_wire(avro(*(f"f{number}=0" for number in range(3000)))), 1),
        client.producer_command(topic, BAD, 2),
        commands.ping(),
    )
    answers = [client.next_command() for _ in range(3)]
    assert [each.type for each in answers] == [BaseCommand.PRODUCER_SUCCESS, BaseCommand.ERROR, BaseCommand.PONG]


def test_nobody_waits_for_the_schemas_of_others(broker: RunningBroker, topic: str) -> None:
    """10.21: while a large schema is parsed and compared, others are served; who hangs up meanwhile is let go."""
    large = on_wire(avro(*(f"field{number}=0" for number in range(15_000))))
    with SchemaClient(broker.service_url) as slow, SchemaClient(broker.service_url) as quick:
        slow.tell(slow.producer_command(topic, large, 1))
        answers = 0
        began_s = time.monotonic()
        slow.socket.setblocking(False)
        while time.monotonic() - began_s < 60:
            assert quick.ask(commands.ping()).type == BaseCommand.PONG
            answers += 1
            try:
                if slow.socket.recv(1, 2):  # MSG_PEEK
                    break
            except BlockingIOError:
                continue
        assert answers > 1
    with SchemaClient(broker.service_url) as gone:
        gone.tell(gone.producer_command(topic, on_wire(avro(*(f"g{number}=0" for number in range(15_000)))), 1))
    with SchemaClient(broker.service_url) as client:
        assert client.get(topic).getSchemaResponse.schema.schema_data == large.schema_data


def test_large_schema_is_kept_and_given_out(client: SchemaClient, topic: str) -> None:
    """10.3, 1.3.1: larger than other commands may be, up to maxSchemaBytes; one byte more is refused."""
    size = 1024 * 1024
    external = on_wire(SchemaInfo(SchemaType.EXTERNAL, b"x" * size))
    assert version_of(client.producer(topic, external)) == 0
    assert client.get(topic).getSchemaResponse.schema.schema_data == external.schema_data
    external.schema_data += b"x"
    assert code_of(client.producer(topic, external)) == INCOMPATIBLE
    assert code_of(client.get_or_create(topic, external)) == INCOMPATIBLE


def test_topics_that_are_not_stored_have_schemas_too(client: SchemaClient, topic: str) -> None:
    """10.1, 10.15: the same as their namesake."""
    passing = topic.replace("persistent", "non-persistent")
    must_succeed(client.consumer(passing, A))
    assert version_of(client.producer(topic, A)) == 0
    assert code_of(client.producer(passing, BAD)) == INCOMPATIBLE


@pytest.mark.parametrize("in_transaction", [False, True])
def test_versions_in_messages_pass_through(broker: RunningBroker, topic: str, in_transaction: bool) -> None:
    """10.20: whatever they are; whether there is such a version is nobody's question."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, schema_version=bytes_of(99))
    body = seal_entry(metadata.SerializeToString(), b"value")
    with TransactionClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        must_succeed(client.subscribe(topic, "reading", 4, permits=10))
        if in_transaction:
            transaction = client.new()
            client.add_partition(transaction, topic)
            client.socket.sendall(send_frame(transaction, body))
            client.tell(client.end_command(transaction, commit=True))
        else:
            client.send_entry(0, 0, body)
        while True:
            frame = client.next_frame()
            if commands.parse_command(frame.command).type == BaseCommand.MESSAGE:
                break
    assert metadata.SerializeToString() in frame.body


def test_validation_is_enforced_where_a_policy_says_so(client: SchemaClient, topic: str, http: httpx.Client) -> None:
    """10.14: for producers without a schema, also by GET_OR_CREATE_SCHEMA, as soon as the topic has one."""
    must_succeed(client.producer(topic))
    assert http.post(f"/{topic.replace('://', '/')}/schemaValidationEnforced", json=True).status_code == 204
    must_succeed(client.producer(topic))
    must_succeed(client.producer(topic, A))
    assert code_of(client.producer(topic)) == INCOMPATIBLE
    assert code_of(client.producer(topic, BYTES)) == INCOMPATIBLE
    assert code_of(client.get_or_create(topic, BYTES)) == INCOMPATIBLE
    must_succeed(client.consumer(topic))


def test_versions_are_there_after_a_kill(data_dir: Path) -> None:
    """10.10: S-STORE-2, every version that was told, byte for byte, and numbers go on."""
    topic = "persistent://public/default/killed"
    schemas = [on_wire(avro("a", *(f"b{number}=0" for number in range(count)))) for count in range(20)]
    with RunningBroker(data_dir) as broker:
        with SchemaClient(broker.service_url) as client:
            assert [version_of(client.producer(topic, each)) for each in schemas] == list(range(20))
        broker.kill()
        broker.start()
        with SchemaClient(broker.service_url) as client:
            for number, each in enumerate(schemas):
                assert client.get(topic, bytes_of(number)).getSchemaResponse.schema.schema_data == each.schema_data
            assert version_of(client.producer(topic, schemas[3])) == 3
            assert version_of(client.producer(topic, on_wire(avro("a", "z=0")))) == 20


def test_hostile_definitions_cost_their_sender_alone(client: SchemaClient, topic: str) -> None:
    """10.21, 10.3: pairs of types without end, depth, and defaults that are tried in vain."""
    union = [{"type": "record", "name": f"X{n}", "fields": []} for n in range(3000)]
    other = [{"type": "record", "name": f"Y{n}", "fields": [{"name": "b", "type": "int"}]} for n in range(3000)]
    must_succeed(client.producer(topic, on_wire(avro({"name": "u", "type": union}))))
    answer = client.producer(topic, on_wire(avro({"name": "u", "type": other})))
    assert code_of(answer) == INCOMPATIBLE
    assert "pairs of types" in answer.error.message
    deep = SchemaInfo(SchemaType.AVRO, b"[" * 400_000)
    assert code_of(client.producer(topic, on_wire(deep))) == INCOMPATIBLE
    names = [f"R{n}" for n in range(6)]
    default: object = 1
    for _ in range(20):
        default = {"f": default}
    types: list[object] = []
    for name in names:
        types.append({"type": "record", "name": name, "fields": [{"name": "f", "type": names[: len(types)] or "int"}]})
    looping = avro({"name": "u", "type": types, "default": json.loads(json.dumps(default))})
    client.producer(f"{topic}-x", on_wire(avro("a")))
    assert code_of(client.producer(f"{topic}-x", on_wire(looping))) == INCOMPATIBLE
