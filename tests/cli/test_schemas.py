# SPDX-License-Identifier: Apache-2.0
"""Schemas with ``pulsarish``: listed, shown, added, compared and deleted, on both ways to a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import pytest

from broker_core.testing.running_broker import HeldPort, RunningBroker
from tests.apache_pulsar.start import ApachePulsar
from tests.cli.conftest import Done, Pulsarish, answering, environment

ID = {"name": "id", "type": "int"}
CITY = {"name": "city", "type": ["null", "string"], "default": None}
NOTE = {"name": "note", "type": "string"}
LONG_ID = {"name": "id", "type": "long"}

APACHE = pytest.param("apache", marks=pytest.mark.pulsar)


def order(*fields: Any) -> bytes:
    return json.dumps({"type": "record", "name": "Order", "fields": fields}).encode()


def found(done: Done) -> dict[str, Any]:
    """The one object that a command has printed."""
    (row,) = objects(done)
    return row


def objects(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=["admin", "wire", APACHE, pytest.param("apache-wire", marks=pytest.mark.pulsar)])
def where(request: pytest.FixtureRequest, broker: RunningBroker) -> Sequence[str]:
    """Options that choose a broker: ours and an Apache Pulsar, with their admin REST and without."""
    if request.param.startswith("apache"):
        apache: ApachePulsar = request.getfixturevalue("apache_pulsar")
        admin = ("--http-url", apache.http_url) if request.param == "apache" else ()
        return ("--url", apache.service_url, *admin)
    return ("--data-dir", str(broker.data_dir)) if request.param == "admin" else ("--url", broker.service_url)


@pytest.fixture(autouse=True)
def no_admin_where_it_is_guessed() -> Iterator[None]:
    """No server answers at the port where an admin REST would be looked for."""
    port = HeldPort()
    with patch("broker_core.cli.target.HTTP_PORT_DEFAULT", port.number):
        yield
    port.release()


@pytest.fixture
def orders(lonely: Pulsarish, where: Sequence[str]) -> str:
    """A topic of the test's own; on an Apache Pulsar it lives longer than a run of tests."""
    name = f"orders-{uuid4().hex[:12]}"
    assert lonely("produce", name, "-m", "x", *where).returncode == 0
    return name


def test_versions_are_added_listed_and_shown(lonely: Pulsarish, where: Sequence[str], orders: str) -> None:
    """10.10, 10.16: what is printed is read back, and a schema that is there keeps its version."""
    missing = lonely("schema", "show", orders, *where)
    assert (missing.returncode, b"has no schema" in missing.stderr) == (3, True)
    assert objects(lonely("schema", "list", orders, *where)) == []
    for fields, version in (([ID], 0), ([ID, CITY], 1), ([ID], 0)):
        assert found(lonely("schema", "put", orders, "-", *where, stdin=order(*fields)))["version"] == version
    listed = objects(lonely("schema", "list", orders, *where))
    assert [(row["version"], row["type"], row["fields"], row["changes"]) for row in listed] == [
        (0, "AVRO", 1, []),
        (1, "AVRO", 2, ["+city"]),
    ]
    shown = lonely("schema", "show", orders, *where)
    assert (found(shown)["schema"], found(shown)["version"]) == (json.loads(order(ID, CITY)), 1)
    assert found(lonely("schema", "put", orders, "-", *where, stdin=shown.stdout))["version"] == 1
    assert lonely("schema", "show", orders, "--version", "0", "--definition", *where).stdout == order(ID) + b"\n"
    table = lonely("schema", "show", orders, "-o", "table", *where)
    assert [line.split() for line in table.stdout.decode().splitlines()] == [
        ["FIELD", "TYPE", "DEFAULT"],
        ["id", "int", "-"],
        ["city", "null", "|", "string", "null"],
    ]
    none = lonely("schema", "show", orders, "--version", "7", *where)
    assert (none.returncode, b"no version 7" in none.stderr) == (3, True)


def test_changes_are_judged_before_they_are_made(lonely: Pulsarish, where: Sequence[str], orders: str) -> None:
    """10.8, 10.18: field by field, in both directions, and in the words of the broker; nothing is added."""
    lonely("schema", "put", orders, "-", *where, stdin=order(ID))
    fine = lonely("schema", "check", orders, "-", *where, stdin=order(ID, CITY))
    assert (fine.returncode, found(fine)["isCompatible"], found(fine)["reason"]) == (0, True, None)
    bad = lonely("schema", "check", orders, "-", *where, stdin=order(LONG_ID, NOTE))
    assert (bad.returncode, found(bad)["schemaCompatibilityStrategy"]) == (10, "FULL")
    ((version, fields),) = [(each["version"], each["fields"]) for each in found(bad)["versions"]]
    assert version == 0
    assert [(each["field"], each["newReadsOld"], each["oldReadsNew"]) for each in fields] == [
        ("id", True, False),
        ("note", False, True),
    ]
    told = "not compatible with version 0 by FULL: the new schema cannot read older data: note: it is not in Order"
    assert told in found(bad)["reason"]
    assert told in bad.stderr.decode()
    same = found(lonely("schema", "check", orders, "-", *where, stdin=order(ID)))
    assert (same["sameAsVersion"], same["versions"][0]["fields"]) == (0, [])
    assert len(objects(lonely("schema", "list", orders, *where))) == 1


def test_an_incompatible_schema_is_refused(lonely: Pulsarish, where: Sequence[str], orders: str) -> None:
    """10.13: exit code 10, and what is no schema as well."""
    lonely("schema", "put", orders, "-", *where, stdin=order(ID))
    refused = lonely("schema", "put", orders, "-", *where, stdin=order(ID, NOTE))
    assert (refused.returncode, b"ncompatible" in refused.stderr) == (10, True), refused.stderr
    invalid = lonely("schema", "put", orders, "-", *where, stdin=b"{}")
    assert (invalid.returncode, b"Invalid schema definition data for AVRO" in invalid.stderr) == (10, True)


def test_the_strategy_in_force_judges(pulsarish: Pulsarish, topic: str) -> None:
    """10.7, 10.8: that of the topic; another one may be named, and older versions count where it is transitive."""
    for fields in ([ID], [ID, CITY]):
        pulsarish("schema", "put", topic, "-", stdin=order(*fields))
    assert pulsarish("produce", topic, "-m", "x").returncode == 0
    pulsarish("topic", "policies", topic, "--set", 'schemaCompatibilityStrategy="FORWARD"')
    forward = pulsarish("schema", "check", topic, "-", "-o", "table", stdin=order(ID, NOTE))
    assert (forward.returncode, b"compatible by FORWARD\nchange producers first" in forward.stderr) == (0, True)
    strict = pulsarish("schema", "check", topic, "-", "--strategy", "full_transitive", stdin=order(ID, NOTE))
    assert (strict.returncode, [each["version"] for each in found(strict)["versions"]]) == (10, [0, 1])
    table = pulsarish(
        *("schema", "check", topic, "-", "-o", "table", "--strategy", "FULL_TRANSITIVE"), stdin=order(ID, NOTE)
    )
    rows = [line.split()[:3] for line in table.stdout.decode().splitlines()]
    assert rows == [["FIELD", "VERSION", "OLD"], ["note", "0", "-"], ["note", "1", "-"], ["city", "1", "null"]]


def test_advice_says_who_changes_first(pulsarish: Pulsarish, topic: str) -> None:
    """10.8: by the direction that works."""
    pulsarish("schema", "put", topic, "-", stdin=order(ID))
    asked = {
        "change consumers first": order(LONG_ID),
        "change producers first": order(ID, NOTE),
        "use a topic of its own": order({"name": "id", "type": "string"}),
        "no field differs from version 0": order(ID),
    }
    for advice, definition in asked.items():
        done = pulsarish("schema", "check", topic, "-", "-o", "table", stdin=definition)
        assert advice in done.stderr.decode()
    first = pulsarish("schema", "check", f"{topic}-2", topic, "-o", "table")
    assert (first.returncode, b"takes any as its first" in first.stderr) == (0, True)


def test_aliases_alone_are_not_kept(pulsarish: Pulsarish, topic: str) -> None:
    """10.5: a schema that differs in nothing else is the version that is there, which is told beforehand."""
    renamed = {"name": "town", "type": ["null", "string"], "default": None}
    pulsarish("schema", "put", topic, "-", stdin=order(ID, renamed))
    for aliased in (order({**ID, "aliases": ["number"]}, renamed), order(ID, {**renamed, "aliases": ["city"]})):
        told = pulsarish("schema", "check", topic, "-", "-o", "table", stdin=aliased)
        assert (told.returncode, b"will not have its aliases" in told.stderr) == (0, True)
        assert found(pulsarish("schema", "check", topic, "-", stdin=aliased))["aliasesAreDropped"] is True
    assert found(pulsarish("schema", "check", topic, "-", stdin=order(ID, renamed)))["aliasesAreDropped"] is False


def test_commands_of_the_page_say_what_the_page_says(broker: RunningBroker, tmp_path: Path) -> None:
    """10.18: docs/schemas.md, as they are copied; the table of a pipe is not folded."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "schemas.md").read_text(encoding="utf-8")
    section = page.partition("## Before a schema changes")[2]
    commands, said = (section.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("sh", "text"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = environment(tmp_path, PULSARISH_DATA_DIR=str(broker.data_dir), PATH=path)
    done = subprocess.run(["bash", "-c", commands], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 10
    (added,), table = json.loads(f"[{done.stdout.partition(chr(10))[0]}]"), done.stdout.partition("\n")[2]
    assert added["version"] == 0
    assert f"{table} {done.stderr}".split() == said.split()


def test_schemas_of_files_and_topics_are_compared(pulsarish: Pulsarish, topic: str, tmp_path: Path) -> None:
    """A file by its name, a topic where there is no such file; a misspelt file is said to be missing."""
    (tmp_path / "order.avsc").write_bytes(order(ID, CITY))
    whole = {"type": "JSON", "schema": order(ID).decode(), "properties": {"a": "b"}}
    (tmp_path / "order.json").write_text(json.dumps(whole), encoding="utf-8")
    assert found(pulsarish("schema", "put", topic, "order.json"))["version"] == 0
    assert found(pulsarish("schema", "show", topic)) | {"timestamp": 0} == {
        "topic": f"persistent://public/default/{topic}",
        "version": 0,
        "timestamp": 0,
        "type": "JSON",
        "schema": json.loads(order(ID)),
        "properties": {"a": "b"},
    }
    assert pulsarish("schema", "check", topic, "order.avsc").returncode == 0  # of the type that the topic has
    other = pulsarish("schema", "check", topic, "order.avsc", "--type", "avro")
    assert (other.returncode, b"exists schema type JSON, new schema type AVRO" in other.stderr) == (10, True)
    pulsarish("schema", "put", f"{topic}-2", "order.avsc", "--type", "json")
    assert pulsarish("schema", "check", topic, f"{topic}-2").returncode == 0
    for arguments, hint in (
        (("check", topic, "oder.avsc"), b'no file "oder.avsc"'),
        (("check", topic, f"{topic}-2", "--type", "json"), b"--type is for a file"),
        (("put", topic, "order.json", "--type", "avro"), b"of type JSON, and not AVRO"),
        (("put", topic, "none.avsc"), b'"none.avsc" cannot be read'),
        (("put", topic), b"no FILE"),
        (("put", topic, "order.avsc", "--type", "key_value"), b"types of its two definitions"),
    ):
        done = pulsarish("schema", *arguments)
        assert (done.returncode, hint in done.stderr) == (2, True), done.stderr


def test_schemas_of_all_types_travel(pulsarish: Pulsarish, topic: str) -> None:
    """10.3, 10.6: those without a definition need no file, KEY_VALUE has two."""
    assert found(pulsarish("schema", "put", topic, "--type", "int64"))["version"] == 0
    table = pulsarish("schema", "show", topic, "-o", "table").stdout.decode().splitlines()
    assert table[1].split() == ["value", "INT64", "-"]
    types = {"key.schema.type": "STRING", "value.schema.type": "AVRO", "kv.encoding.type": "SEPARATED"}
    pair = {"type": "KEY_VALUE", "schema": {"key": "", "value": json.loads(order(ID))}, "properties": types}
    assert found(pulsarish("schema", "put", f"{topic}-2", "-", stdin=json.dumps(pair).encode()))["version"] == 0
    shown = found(pulsarish("schema", "show", f"{topic}-2"))
    assert (shown["schema"], shown["properties"]) == (pair["schema"], types)
    told = pulsarish("schema", "show", f"{topic}-2", "-o", "table").stdout.decode().splitlines()
    assert [line.split()[:2] for line in told[1:]] == [["key", "STRING"], ["value.id", "int"]]
    unknown = json.dumps({**pair, "properties": {"key.schema.type": "NO"}}).encode()
    done = pulsarish("schema", "check", f"{topic}-2", "-", stdin=unknown)
    assert (done.returncode, b"which is no type" in done.stderr) == (10, True)


def test_schemas_of_older_forms_are_shown_as_they_are(broker: RunningBroker, lonely: Pulsarish) -> None:
    """10.3: an Apache Pulsar may have JSON schemas that are no Avro; what they are beside others is not known."""
    legacy = {"version": 0, "type": "JSON", "timestamp": 1, "data": '{"type":"object"}', "properties": {}}
    newer = {**legacy, "version": 1, "data": order(ID).decode()}
    body = json.dumps({"getSchemaResponses": [legacy, newer], **legacy}).encode()
    with answering(200, body) as url:
        where = ("--url", broker.service_url, "--http-url", url)
        listed = objects(lonely("schema", "list", "t", *where))
        shown = lonely("schema", "show", "t", "-o", "table", *where)
    assert [(row["fields"], row["changes"]) for row in listed] == [(0, []), (1, [])]
    assert shown.stdout == b'{"type":"object"}\n'


def test_deleting_asks_and_warns(lonely: Pulsarish, broker: RunningBroker, pulsarish: Pulsarish, topic: str) -> None:
    """10.11: versions go on behind a deletion, and begin anew behind one by force; only the admin REST deletes."""
    pulsarish("schema", "put", topic, "-", stdin=order(ID))
    asked = pulsarish("schema", "delete", topic)
    assert (asked.returncode, b"1 version" in asked.stderr) == (2, True)
    forced = pulsarish("schema", "delete", topic, "--force")
    assert b"cannot be decoded any more" in forced.stderr
    elsewhere = lonely("schema", "delete", topic, "-y", "--url", broker.service_url)
    assert (elsewhere.returncode, b"--http-url" in elsewhere.stderr) == (2, True)
    assert pulsarish("schema", "delete", topic, "-y").returncode == 0
    assert (pulsarish("schema", "delete", topic, "-y").returncode, objects(pulsarish("schema", "list", topic))) == (
        3,
        [],
    )
    assert found(pulsarish("schema", "put", topic, "-", stdin=order(NOTE)))["version"] == 2
    assert pulsarish("schema", "delete", topic, "-y", "--force").returncode == 0
    assert found(pulsarish("schema", "put", topic, "-", stdin=order(ID)))["version"] == 0
