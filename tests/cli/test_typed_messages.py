# SPDX-License-Identifier: Apache-2.0
"""Messages with schemas: produced from JSON lines that are checked, and printed decoded."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from broker_core.client import Client
from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.cli.conftest import Done, Pulsarish, command_line, environment
from tests.schemas.infos import proto_file, protobuf_native

ORDER_FIELDS = [
    {"name": "id", "type": "int"},
    {"name": "city", "type": ["null", "string"], "default": None},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
]
ORDER = {"type": "record", "name": "Order", "fields": ORDER_FIELDS}
FIELDS = {
    "at": ({"type": "long", "logicalType": "timestamp-micros"}, "2026-01-31T12:00:00.000001+00:00"),
    "local": ({"type": "long", "logicalType": "local-timestamp-millis"}, "2026-01-31T12:00:00.001000"),
    "day": ({"type": "int", "logicalType": "date"}, "2026-01-31"),
    "clock": ({"type": "long", "logicalType": "time-micros"}, "12:00:00.000001"),
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}, "-12.30"),
    "who": ({"type": "string", "logicalType": "uuid"}, "8b2ef0a4-2b4e-4b57-9f4b-0d5f8a3c1d11"),
    "it": (
        {"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"},
        "8b2ef0a4-2b4e-4b57-9f4b-0d5f8a3c1d11",
    ),
    "raw": ("bytes", "AAH/"),
    "ratio": ("double", "NaN"),
    "kind": ({"type": "enum", "name": "K", "symbols": ["A", "B"]}, "B"),
    "any": (["null", "int", "string", {"type": "long", "logicalType": "timestamp-millis"}], "text"),
    "map": ({"type": "map", "values": ["null", "double"]}, {"x": 1.5, "y": None}),
    "inner": ({"type": "record", "name": "I", "fields": [{"name": "n", "type": ["null", "Top"]}]}, {"n": None}),
}
"""Fields of each kind, with a value as it is printed."""


def objects(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in values)


@pytest.fixture
def orders(pulsarish: Pulsarish, topic: str) -> str:
    """A topic with a schema."""
    assert pulsarish("schema", "put", topic, "-", stdin=json.dumps(ORDER).encode()).returncode == 0
    return topic


@pytest.mark.parametrize("form", [[], ["--input", "jsonl"]])
def test_decimal_of_a_line_keeps_its_digits(pulsarish: Pulsarish, topic: str, tmp_path: Path, form: list[str]) -> None:
    """10.13: as a number too, which has more of them than a double."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}
    fields = [{"name": "price", "type": ["null", decimal]}, {"name": "ratio", "type": ["null", "double"]}]
    (tmp_path / "r.avsc").write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    value = '{"price": 123456789012345678.91, "ratio": 0.5}'
    line = f'{{"value": {value}}}' if form else value
    done = pulsarish("produce", topic, "--schema", "r.avsc", *form, stdin=line.encode())
    assert done.returncode == 0, done.stderr
    (row,) = objects(pulsarish("consume", topic, "--exit"))
    assert row["value"] == {"price": "123456789012345678.91", "ratio": 0.5}


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_lines_come_back_as_they_were(pulsarish: Pulsarish, topic: str, tmp_path: Path, kind: str) -> None:
    """10.13, 10.20: through a file's schema, which the topic gets, and through the pipe of one command to the next."""
    fields = [{"name": name, "type": each} for name, (each, _) in FIELDS.items()]
    (tmp_path / "top.avsc").write_text(json.dumps({"type": "record", "name": "Top", "fields": fields}))
    value = {name: each for name, (_, each) in FIELDS.items()}
    schema = ("--schema", "top.avsc", "--schema-type", kind)
    done = pulsarish("produce", topic, *schema, "-k", "a", stdin=lines(value, value))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2), done.stderr
    consumed = pulsarish("consume", topic, "--exit")
    assert [(row["value"], row["schemaVersion"], row["key"]) for row in objects(consumed)] == [(value, 0, "a")] * 2
    copied = pulsarish("produce", f"{topic}-2", "--input", "jsonl", *schema, stdin=consumed.stdout)
    assert copied.returncode == 0, copied.stderr
    again = pulsarish("consume", f"{topic}-2", "--exit", "-n", "1", "-o", "text")
    assert again.stdout.decode().partition("  a  ")[2] == json.dumps(value) + "\n"


def test_each_message_is_read_by_its_version(pulsarish: Pulsarish, orders: str, tmp_path: Path) -> None:
    """10.20: one without a version is bytes, as with --raw and -o raw all are; so are those looked at elsewhere."""
    larger = {**ORDER, "fields": [{"name": "more", "type": "long", "default": 0}, *ORDER_FIELDS]}
    (tmp_path / "larger.avsc").write_text(json.dumps(larger))
    pulsarish("produce", orders, "-m", '{"id": 1}', "--schema", "topic")
    pulsarish("produce", orders, "-m", '{"id": 2, "more": 5}', "--schema", "larger.avsc")
    pulsarish("produce", orders, "-m", "plain")
    first: dict[str, Any] = {"id": 1, "city": None, "tags": []}
    second = {"more": 5, **first, "id": 2}
    shown = [(row["value"], row["schemaVersion"]) for row in objects(pulsarish("consume", orders, "--exit"))]
    assert shown == [(first, 0), (second, 1), ("plain", None)]
    raw = objects(pulsarish("consume", orders, "--exit", "--raw"))
    assert [row["value"] for row in raw] == ["\x02\x00\x00", "\x0a\x04\x00\x00", "plain"]
    assert pulsarish("consume", orders, "--exit", "-n", "1", "-o", "raw").stdout == b"\x02\x00\x00\n"
    examined = pulsarish("topic", "examine", orders, "--from", "earliest", "-n", "2")
    assert [row["value"] for row in objects(examined)] == [second]
    pulsarish("sub", "create", orders, "s", "--from", "earliest")
    peeked = pulsarish("sub", "peek", orders, "s", "-n", "2")
    assert [row["value"] for row in objects(peeked)] == [first, second]


@pytest.mark.pulsar
def test_lines_come_back_from_an_apache_pulsar(lonely: Pulsarish, apache_pulsar: ApachePulsar, tmp_path: Path) -> None:
    """10.13, 10.20: by its versions."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    where, topic = ("--url", apache_pulsar.service_url), f"orders-{uuid4().hex[:12]}"
    value = {"id": 1, "city": "Ghent", "tags": ["a"]}
    first = lonely("produce", topic, "--schema", "order.avsc", *where, stdin=lines(value))
    assert first.returncode == 0, first.stderr
    assert lonely("produce", topic, "--schema", "topic", *where, stdin=lines(value)).returncode == 0
    assert [row["value"] for row in objects(lonely("consume", topic, "--exit", *where))] == [value] * 2
    other = lonely("produce", topic, "--schema", "int32", "-m", "1", *where)
    assert other.returncode == 10, other.stderr


def test_payloads_that_do_not_fit_are_shown_with_the_reason(
    pulsarish: Pulsarish, broker: RunningBroker, orders: str
) -> None:
    """10.20: bytes as they are; nothing stops."""
    info = SchemaInfo(SchemaType.AVRO, json.dumps(ORDER).encode())
    with Client(broker.service_url) as client, client.create_producer(orders, schema=info) as producer:
        producer.send(b"\x02\x02\x08abcd\x00")
        producer.send(b"\x02\x02\x7f")
    done = pulsarish("consume", orders, "--exit")
    good, bad = objects(done)
    assert good["value"] == {"id": 1, "city": "abcd", "tags": []}
    assert (bad["value"], bad["schemaVersion"], bad["valueError"].partition(":")[0]) == ("\x02\x02\x7f", 0, "city")
    text = pulsarish("consume", orders, "--exit", "-o", "text").stdout.decode().splitlines()
    assert "(not decoded: city: " in text[1]
    pulsarish("schema", "delete", orders, "-y", "--force")
    lost = objects(pulsarish("consume", orders, "--exit"))
    assert [row["valueError"] for row in lost] == ["the topic has no version 0 of a schema"] * 2
    back = pulsarish("produce", f"{orders}-2", "--input", "jsonl", "--schema", "string", stdin=done.stdout)
    assert (back.returncode, b"line 1 of the input is no value of the schema" in back.stderr) == (2, True)


@pytest.mark.parametrize("kind", ["avro", "json"])
def test_deep_values_are_told_and_no_crash(pulsarish: Pulsarish, broker: RunningBroker, topic: str, kind: str) -> None:
    """10.20: records within themselves, as deep as a payload makes them."""
    rest = {"name": "rest", "type": {"type": "array", "items": "R"}}
    definition = json.dumps({"type": "record", "name": "R", "fields": [rest]})
    info = SchemaInfo(SchemaType[kind.upper()], definition.encode())
    with Client(broker.service_url) as client, client.create_producer(topic, schema=info) as producer:
        for depth in (20, *range(100, 400, 10)):
            as_json = b'{"rest":[' * depth + b"]}" * depth
            producer.send(as_json if kind == "json" else b"\x02" * (depth - 1) + b"\0" * depth)
    rows = objects(pulsarish("consume", topic, "--exit"))
    assert len(rows) == 31
    assert rows[0]["value"]["rest"][0]["rest"]
    assert rows[-1]["valueError"] == "it is nested too deep"
    deep = '{"rest":[' * 200 + "]}" * 200
    done = pulsarish("produce", topic, "--schema", "topic", "-m", deep)
    assert (done.returncode, b"it is nested too deep" in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ({"id": "x"}, b"id: 'x' is not a number of type int"),
        ({"id": 1, "ctiy": "Ghent"}, b'ctiy: record Order has no such field, did you mean "city"?'),
        ({"id": 1, "tags": ["a", 1]}, b"tags[]: 1 is not a text"),
        ({"city": "Ghent"}, b"id: "),
        ([1], b"is not record Order"),
        (1 << 40, b"is not record Order"),
    ],
)
def test_a_bad_line_is_refused_before_anything_is_sent(
    pulsarish: Pulsarish, orders: str, bad: Any, told: bytes
) -> None:
    """10.13: by its number and field, where the input can be read twice."""
    done = pulsarish("produce", orders, "--schema", "topic", stdin=lines({"id": 1}, bad, {"id": 3}))
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"line 2 of the input is no value of the schema" in done.stderr
    assert told in done.stderr
    assert b"nothing was sent" in done.stderr
    given = pulsarish("produce", orders, "--schema", "topic", "-m", '{"id": 1}', "-m", json.dumps(bad))
    assert (given.returncode, given.stdout, b"value 2 of the input" in given.stderr) == (2, b"", True)
    assert objects(pulsarish("consume", orders, "--exit")) == []


def test_a_bad_line_in_a_pipe_ends_it_and_what_is_sent_is_told(
    pulsarish: Pulsarish, broker: RunningBroker, orders: str, tmp_path: Path
) -> None:
    """10.13: lines before it are stored, and counted."""
    done = subprocess.run(
        command_line("produce", orders, "--schema", "topic"),
        input=lines({"id": 1}, {"id": 2}) + b"nonsense\n",
        capture_output=True,
        env=environment(tmp_path, PULSARISH_DATA_DIR=str(broker.data_dir)),
        check=False,
        timeout=60,
    )
    assert (done.returncode, len(done.stdout.splitlines())) == (2, 2)
    assert b"confirmed as stored: 2 of 2 messages\nerror: line 3 of the input" in done.stderr
    assert b"it is not JSON" in done.stderr
    assert [row["value"]["id"] for row in objects(pulsarish("consume", orders, "--exit"))] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("boolean", [True, False]),
        ("int8", [-128]),
        ("int64", [1 << 60]),
        ("double", [1.5, "-Infinity"]),
        ("timestamp", ["2026-01-31T12:00:00.001000+00:00"]),
        ("instant", ["2026-01-31T12:00:00.000001+00:00"]),
        ("local_date", ["2026-01-31"]),
        ("local_time", ["12:00:00"]),
        ("local_date_time", ["2026-01-31T12:00:00"]),
    ],
)
def test_values_of_types_without_a_definition(
    pulsarish: Pulsarish, topic: str, kind: str, values: Sequence[Any]
) -> None:
    """10.3: the type is all that has to be named."""
    done = pulsarish("produce", topic, "--schema", kind, stdin=lines(*values, None))
    assert done.returncode == 0, done.stderr
    assert [row["value"] for row in objects(pulsarish("consume", topic, "--exit"))] == [*values, None]
    bad = pulsarish("produce", topic, "--schema", "topic", "-m", '"no such value"')
    assert (bad.returncode, b"value 1 of the input is no value" in bad.stderr) == (2, True)


def test_strings_are_lines_of_text(pulsarish: Pulsarish, topic: str) -> None:
    """10.3: a line is the value, and in objects it is a text of JSON."""
    assert pulsarish("produce", topic, "--schema", "string", stdin="\u00e9\n7\n".encode()).returncode == 0
    pulsarish("produce", topic, "--schema", "topic", "--input", "jsonl", stdin=lines({"value": "x"}, {"value": None}))
    assert [row["value"] for row in objects(pulsarish("consume", topic, "--exit"))] == ["\u00e9", "7", "x", None]
    number = pulsarish("produce", topic, "--schema", "topic", "--input", "jsonl", stdin=lines({"value": 7}))
    assert (number.returncode, b"line 1 of the input" in number.stderr) == (2, True)


@pytest.mark.parametrize("encoding", ["INLINE", "SEPARATED"])
def test_pairs_have_a_key_and_a_value(pulsarish: Pulsarish, topic: str, encoding: str) -> None:
    """10.6: the key is that of the message where it is kept apart."""
    types = {"key.schema.type": "INT32", "value.schema.type": "AVRO", "kv.encoding.type": encoding}
    whole = {"type": "KEY_VALUE", "schema": {"key": "", "value": ORDER}, "properties": types}
    pulsarish("schema", "put", topic, "-", stdin=json.dumps(whole).encode())
    pair = {"key": 7, "value": {"id": 1, "city": None, "tags": ["a"]}}
    done = pulsarish("produce", topic, "--schema", "topic", stdin=lines(pair, {"key": 8, "value": None}))
    assert done.returncode == 0, done.stderr
    rows = objects(pulsarish("consume", topic, "--exit"))
    assert [row["value"] for row in rows] == [pair, {"key": 8, "value": None}]
    assert rows[0]["key"] == ("\x00\x00\x00\x07" if encoding == "SEPARATED" else None)
    for bad, told in (
        ({"key": "x", "value": None}, b"key: 'x' is not a whole number"),
        ({"key": 7, "value": {}}, b"value.id: "),
        ({"key": 7}, b'is not an object with "key" and "value"'),
    ):
        refused = pulsarish("produce", topic, "--schema", "topic", stdin=lines(bad))
        assert (refused.returncode, told in refused.stderr) == (2, True), refused.stderr


def test_messages_of_protobuf(pulsarish: Pulsarish, topic: str, tmp_path: Path) -> None:
    """10.3: by the descriptors that are the schema, in Protobuf's own form of JSON."""
    file = proto_file("root.proto", ["M"])
    file.message_type[0].field.add(name="some_bytes", number=2, type=12, label=1)
    (tmp_path / "m.json").write_bytes(protobuf_native("p.M", file).data)
    schema = ("--schema", "m.json", "--schema-type", "protobuf_native")
    value = {"a": 7, "some_bytes": "AAH/"}
    assert pulsarish("produce", topic, *schema, stdin=lines(value)).returncode == 0
    assert [row["value"] for row in objects(pulsarish("consume", topic, "--exit"))] == [value]
    for bad, told in (({"a": "x"}, b"a"), ({"b": 1}, b'no field named "b"'), ([1], b"is not message p.M")):
        done = pulsarish("produce", topic, "--schema", "topic", stdin=lines(bad))
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_wrong_words_about_schemas(pulsarish: Pulsarish, orders: str, topic: str, tmp_path: Path) -> None:
    """Usage that nothing can be sent by; and a schema that the topic does not take."""
    (tmp_path / "other.avsc").write_text(json.dumps({**ORDER, "fields": [{"name": "x", "type": "int"}]}))
    (tmp_path / "proto.json").write_text(json.dumps({"type": "PROTOBUF", "schema": ORDER}))
    latin = {"type": "STRING", "schema": "", "properties": {"__charset": "ISO-8859-1"}}
    (tmp_path / "latin.json").write_text(json.dumps(latin))
    for arguments, code, told in (
        (("--schema-type", "avro"), 2, b"--schema-type is for --schema"),
        (("--schema", "topic", "--schema-type", "avro"), 2, b"--schema-type is for a file"),
        (("--schema", "none.avsc"), 2, b"cannot be read"),
        (("--schema", "proto.json"), 2, b"values of PROTOBUF schemas cannot be made here"),
        (("--schema", "latin.json"), 2, b"texts in 'ISO-8859-1' cannot be made here"),
        (("--schema", "other.avsc"), 10, b"not compatible with version 0"),
    ):
        done = pulsarish("produce", orders, "-m", '{"x": 1}', *arguments)
        assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    nothing = pulsarish("produce", f"{topic}-2", "-m", "1", "--schema", "topic")
    assert (nothing.returncode, b"has no schema" in nothing.stderr) == (3, True)
    for row, told in (
        ({"value": {"id": 1}}, b"Give --schema"),
        ({"valueBase64": "AA=="}, b"with --schema its value is JSON"),
    ):
        schema = () if "value" in row else ("--schema", "topic")
        done = pulsarish("produce", orders, "--input", "jsonl", *schema, stdin=lines(row))
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr
