# SPDX-License-Identifier: Apache-2.0
"""Schemas by the official Python client, and by pulsar-admin."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import AvroSchema, BytesSchema, Integer, JsonSchema, Record, String, StringSchema

from broker_core.testing.running_broker import RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.compat.receiving import PATIENCE_MS
from tests.compat.tools import failures, shell, tools_command, what_the_shell_says

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schemas.md"


class Order(Record):  # type: ignore[misc] # the client has no types here
    id = Integer(required=True)
    city = String()


class Better(Record):  # type: ignore[misc] # the client has no types here
    id = Integer(required=True)
    note = String(default="none", required_default=True)
    city = String()


class Worse(Record):  # type: ignore[misc] # the client has no types here
    id = Integer(required=True)
    city = String()
    more = String()


@pytest.mark.parametrize("schema", [AvroSchema, JsonSchema])
def test_records_go_through_typed_and_evolve(client: pulsar.Client, topic: str, schema: Any) -> None:
    """10.13, 10.15, 10.16: S-PY-1 and S-PY-3, an old consumer reads a new record, the reader looks up its version."""
    consumer = client.subscribe(topic, "s", schema=schema(Order))
    producer = client.create_producer(topic, schema=schema(Order))
    producer.send(Order(id=1, city="Oslo"))
    better = client.create_producer(topic, schema=schema(Better))
    better.send(Better(id=2, note="n", city="Rome"))
    found = [consumer.receive(PATIENCE_MS) for _ in range(2)]
    assert [(each.value().id, each.value().city) for each in found] == [(1, "Oslo"), (2, "Rome")]
    assert [int.from_bytes(each.schema_version().encode(), "big") for each in found] == [0, 1]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=schema(Worse))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "t", schema=StringSchema())


def test_texts_and_bytes_go_through(client: pulsar.Client, topic: str) -> None:
    """10.3, 10.4: whose data the client writes as null; bytes go wherever they like."""
    producer = client.create_producer(topic, schema=StringSchema())
    consumer = client.subscribe(topic, "s", schema=StringSchema(), initial_position=pulsar.InitialPosition.Earliest)
    producer.send("é")
    client.create_producer(topic, schema=BytesSchema()).send(b"plain")
    assert [consumer.receive(PATIENCE_MS).value() for _ in range(2)] == ["é", "plain"]


def test_program_of_the_page_says_what_the_page_says(broker: RunningBroker) -> None:
    """10.18: docs/schemas.md, as it is copied."""
    text = PAGE.read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    said, reason, _ = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    program = program.replace("pulsar://localhost:6650", broker.service_url)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("Order", "LargerOrder", "BetterOrder"))] == said.splitlines()
    assert " ".join(reason.split()) in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.pulsar
def test_pulsar_admin_keeps_schemas(broker: RunningBroker, tmp_path: Path) -> None:
    """10.19: uploaded, read by version, asked about, deleted; its names of policies."""
    tool = tools_command(tmp_path)
    (tmp_path / "client.conf").write_text(f"webServiceUrl={broker.http_url}\nbrokerServiceUrl={broker.service_url}\n")
    definition = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "AVRO", "schema": json.dumps(definition), "properties": {}}))
    namespace, topic = "public/typed", "public/typed/t"
    said = what_the_shell_says(
        tool,
        tmp_path,
        [
            f"admin namespaces create {namespace}",
            f"admin schemas upload -f {file} {topic}",
            f"admin schemas get {topic}",
            f"admin schemas get -v 0 {topic}",
            f"admin schemas compatibility -f {file} {topic}",
            f"admin schemas delete {topic}",
            f"admin namespaces set-schema-autoupdate-strategy {namespace} -c Backward",
            f"admin namespaces get-schema-autoupdate-strategy {namespace}",
            f"admin namespaces get-schema-compatibility-strategy {namespace}",
            f"admin namespaces get-is-allow-auto-update-schema {namespace}",
        ],
    )
    texts = list(said.values())
    for shown in texts[2:4]:
        assert '"name": "R"' in shown
    assert "backward" in texts[7].lower()


def definition(*fields: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": each, "type": "int"} for each in fields]})


SCHEMAS = {
    "first": {"type": "AVRO", "schema": definition("a"), "properties": {"owner": "shop"}},
    "second": {"type": "AVRO", "schema": definition("a", "b"), "properties": {}},
    "other": {"type": "STRING", "schema": "", "properties": {}},
    "broken": {"type": "AVRO", "schema": "{", "properties": {}},
    "pair": {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": "", "value": json.loads(definition("a"))}),
        "properties": {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"},
    },
}
N, T, PAIR = "public/tool", "public/tool/t", "public/tool/pair"
COMMANDS = (
    f"admin namespaces create {N}",
    f"admin topics create {T}",
    f"admin schemas get {T}",
    f"admin schemas upload -f first.json {T}",
    f"admin schemas upload -f first.json {T}",
    f"admin schemas get {T}",
    f"admin schemas get -v 0 {T}",
    f"admin schemas get -v 7 {T}",
    f"admin schemas get --all-version {T}",
    f"admin schemas upload -f second.json {T}",
    f"admin schemas upload -f other.json {T}",
    f"admin schemas upload -f broken.json {T}",
    f"admin schemas compatibility -f first.json {T}",
    f"admin namespaces set-schema-compatibility-strategy -c FORWARD {N}",
    f"admin namespaces get-schema-compatibility-strategy {N}",
    f"admin topicPolicies set-schema-compatibility-strategy {T} -s FORWARD_TRANSITIVE",
    f"admin schemas upload -f second.json {T}",
    f"admin schemas metadata {T}",
    f"admin namespaces set-is-allow-auto-update-schema --disable {N}",
    f"admin namespaces get-is-allow-auto-update-schema {N}",
    f"admin namespaces set-schema-validation-enforce --enable {N}",
    f"admin namespaces get-schema-validation-enforce {N}",
    f"admin schemas delete {T}",
    f"admin schemas get {T}",
    f"admin schemas upload -f other.json {T}",
    f"admin schemas delete --force {T}",
    f"admin schemas get {T}",
    f"admin schemas upload -f pair.json {PAIR}",
    f"admin schemas get {PAIR}",
)


@pytest.mark.slow
@pytest.mark.pulsar
def test_pulsar_admin_ends_as_on_apache_pulsar(
    broker: RunningBroker, apache_pulsar: ApachePulsar, tmp_path: Path
) -> None:
    """10.19: each of its commands about schemas, well or with a failure, and what it shows of a schema."""
    tool = tools_command(tmp_path)
    for name, schema in SCHEMAS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(schema))
    commands = [re.sub(r"-f (\w+)", rf"-f {tmp_path}/\1", each) for each in COMMANDS]
    said = []
    for at in (broker, apache_pulsar):
        (tmp_path / "client.conf").write_text(f"webServiceUrl={at.http_url}\nbrokerServiceUrl={at.service_url}\n")
        said.append([(bool(failures(text)), _shown(text)) for text in shell(tool, tmp_path, commands)])
    ours, theirs = said
    assert [each for each in zip(COMMANDS, ours, theirs, strict=True) if each[1] != each[2]] == []


def _shown(text: str) -> str:
    """The output of a command, without times and places, and without the words of a failure."""
    return "" if failures(text) else re.sub(r'"(timestamp|ledgerId|entryId)"\s*:\s*\d+', "", text).strip()
