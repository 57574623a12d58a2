# SPDX-License-Identifier: Apache-2.0
"""Schemas over the admin REST: added, read, deleted, asked about."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from broker_core.schemas.info import SchemaInfo, SchemaType
from broker_core.testing.raw_client import must_succeed
from broker_core.testing.running_broker import RunningBroker
from tests.schemas.infos import STRING, avro, key_value, proto_file, protobuf_native
from tests.server.schema_client import SchemaClient, on_wire, version_of

A, B, BAD = avro("a"), avro("a", "b=0"), avro("a", "x")


def body(info: SchemaInfo) -> dict[str, Any]:
    return {"type": info.type.name, "schema": info.data.decode(), "properties": dict(info.properties)}


@pytest.fixture
def schemas(topic: str) -> str:
    """The path of a topic's schemas."""
    return f"/schemas/{topic.removeprefix('persistent://')}"


def test_schema_is_added_read_and_deleted(http: httpx.Client, schemas: str) -> None:
    """10.19, 10.11, 10.12: S-REST-1 to S-REST-4, for a topic that does not exist, with Pulsar's objects."""
    assert http.get(f"{schemas}/schema").status_code == 404
    assert http.get(f"{schemas}/schemas").json() == {"getSchemaResponses": []}
    assert http.delete(f"{schemas}/schema").json() == {"version": -1}
    for info, version in ((A, 0), (B, 1), (A, 0)):
        added = http.post(f"{schemas}/schema", json={**body(info), "properties": {"of": "me"}})
        assert (added.status_code, added.json()) == (200, {"version": {"version": version}})
    latest = http.get(f"{schemas}/schema").json()
    assert latest.pop("timestamp") > 0
    assert latest == {"version": 1, "type": "AVRO", "data": B.data.decode(), "properties": {"of": "me"}}
    assert http.get(f"{schemas}/schema/0").json()["data"] == A.data.decode()
    assert [each["version"] for each in http.get(f"{schemas}/schemas").json()["getSchemaResponses"]] == [0, 1]
    assert http.get(f"{schemas}/metadata").json() == {"info": {"version": 1}, "index": [{"version": 0}, {"version": 1}]}
    assert http.delete(f"{schemas}/schema").json() == {"version": 2}
    assert http.get(f"{schemas}/schema").status_code == 404
    assert http.get(f"{schemas}/schema/0").status_code == 404
    assert http.get(f"{schemas}/metadata").status_code == 404
    assert http.post(f"{schemas}/schema", json=body(A)).json() == {"version": {"version": 3}}
    assert http.delete(f"{schemas}/schema?force=true").json() == {"version": -1}
    assert http.post(f"{schemas}/schema", json=body(B)).json() == {"version": {"version": 0}}


def test_bad_requests_have_their_statuses(http: httpx.Client, schemas: str) -> None:
    """10.19: 409 for an incompatible schema, 422 for none, 400 for no request, 404 for no namespace; with reasons."""
    assert http.post(f"{schemas}/schema", json=body(A)).status_code == 200
    for status, content in (
        (409, body(BAD)),
        (409, body(STRING)),
        (422, {"type": "AVRO", "schema": "{"}),
        (422, {"type": "AVROX", "schema": "{}"}),
        (422, {"type": "AUTO_CONSUME"}),
        (422, {"type": "KEY_VALUE", "schema": "x"}),
        (422, {"type": "KEY_VALUE", "schema": "{}"}),
        (400, ["x"]),
        (400, None),
    ):
        for path in ("schema", "version", "compatibility") if status != 409 else ("schema",):
            answer = http.post(f"{schemas}/{path}", json=content)
            assert (answer.status_code, bool(answer.json()["reason"])) == (status, True), (path, content)
    assert http.get(f"{schemas}/schema/one").status_code == 400
    for method, path in (("GET", "schema"), ("GET", "schemas"), ("DELETE", "schema")):
        assert http.request(method, f"/schemas/public/nowhere/t/{path}").status_code == 404
    assert http.post("/schemas/public/nowhere/t/schema", json=body(A)).status_code == 404


def test_question_is_answered_with_yes_or_no(http: httpx.Client, schemas: str, topic: str) -> None:
    """10.19: S-REST-5 and S-REST-6, "not compatible" is no error, and white space makes no difference."""
    assert http.put(f"/persistent/{topic.removeprefix('persistent://')}").status_code == 204
    assert http.post(f"{schemas}/version", json=body(A)).json() == {"version": -1}
    assert http.post(f"{schemas}/schema", json=body(A)).status_code == 200
    spaced = {**body(A), "schema": json.dumps(json.loads(A.data), indent=3)}
    assert http.post(f"{schemas}/version", json=spaced).json() == {"version": 0}
    for info, fits in ((B, True), (BAD, False), (STRING, False)):
        answer = http.post(f"{schemas}/compatibility", json=body(info))
        assert answer.status_code == 202
        assert answer.json() == {"compatibility": fits, "schemaCompatibilityStrategy": "FULL"}
    path = f"/persistent/{topic.removeprefix('persistent://')}/schemaCompatibilityStrategy"
    assert http.get(path).content == b""
    assert http.get(f"{path}?applied=true").json() == "FULL"
    assert http.put(path, json="FORWARD").status_code == 204
    answer = http.post(f"{schemas}/compatibility", json=body(BAD))
    assert answer.json() == {"compatibility": True, "schemaCompatibilityStrategy": "FORWARD"}
    assert [each["version"] for each in http.get(f"{schemas}/schemas").json()["getSchemaResponses"]] == [0]


def test_key_value_and_descriptors_are_json(broker: RunningBroker, http: httpx.Client, topic: str) -> None:
    """10.19, 10.6: S-KV-4, an object of two definitions, of which the data for clients are made, and back."""
    schemas = f"/schemas/{topic.removeprefix('persistent://')}"
    info = key_value(STRING, SchemaInfo(A.type, json.dumps(json.loads(A.data)).encode()))
    text = json.dumps({"key": "", "value": json.loads(A.data)})
    assert http.post(f"{schemas}/schema", json={**body(info), "schema": text}).status_code == 200
    assert json.loads(http.get(f"{schemas}/schema").json()["data"]) == json.loads(text)
    native = protobuf_native("p.M", proto_file("root.proto", ["M"]))
    assert http.post(f"{schemas}-n/schema", json=body(native)).status_code == 200
    assert http.get(f"{schemas}-n/schema").json()["data"] == native.data.decode()
    with SchemaClient(broker.service_url) as client:
        assert client.get(topic).getSchemaResponse.schema.schema_data == info.data
        assert version_of(client.producer(topic, on_wire(info))) == 0


def test_administrators_may_add_what_clients_may_not(broker: RunningBroker, http: httpx.Client, namespace: str) -> None:
    """10.13, 10.19: without auto update; clients then use what was added."""
    topic = f"persistent://{namespace}/t"
    assert http.post(f"/namespaces/{namespace}/isAllowAutoUpdateSchema", json=False).status_code == 204
    with SchemaClient(broker.service_url) as client:
        assert "auto updating is disabled" in client.producer(topic, on_wire(A)).error.message
        assert http.post(f"/schemas/{namespace}/t/schema", json=body(A)).status_code == 200
        must_succeed(client.producer(topic, on_wire(A)))


def test_schemas_go_with_topic_and_namespace(http: httpx.Client, namespace: str) -> None:
    """10.11: of a partitioned topic with the last of it."""
    for name in ("t", "q"):
        assert http.post(f"/schemas/{namespace}/{name}/schema", json=body(A)).status_code == 200
    assert http.delete(f"/persistent/{namespace}/t").status_code == 204
    assert http.get(f"/schemas/{namespace}/t/schema").status_code == 404
    assert http.delete(f"/persistent/{namespace}/q/partitions").status_code == 204
    assert http.get(f"/schemas/{namespace}/q/schema").status_code == 404


def test_names_of_topics_may_be_any(http: httpx.Client, topic: str) -> None:
    """10.1: percent-encoded in paths, as everywhere."""
    path = f"/schemas/{topic.removeprefix('persistent://')}%2F%C3%A9%20x/schema".replace("%2F", "")
    assert http.post(path, json=body(A)).status_code == 200
    assert http.get(path).json()["type"] == SchemaType.AVRO.name
