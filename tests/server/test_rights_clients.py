# SPDX-License-Identifier: Apache-2.0
"""Clients at a broker with rights: the official one and ours, and what the audit log keeps of them."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pulsar
import pytest

from broker_core.base.errors import AuthorizationError
from broker_core.base.local_access import token_of
from broker_core.client import AuthenticationToken, Client
from broker_core.testing.running_broker import RunningBroker
from tests.server.credentials import settings, token

ROOT = "root"
TOPIC = "persistent://public/default/orders"
PERMISSIONS = "/admin/v2/namespaces/public/default/permissions"
SOON_S = 10
"""A refusal is final, so it comes long before clients give up."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker on which ``writer`` may produce, and ``reader`` consume."""
    folder = tmp_path_factory.mktemp("broker")
    rights = {"authorizationEnabled": True, "superUserRoles": [ROOT]}
    with RunningBroker(folder / "data", settings(folder, **rights)) as running:
        with admin(running, ROOT) as http:
            assert http.post(f"{PERMISSIONS}/writer", json=["produce"]).status_code == 204
            assert http.post(f"{PERMISSIONS}/reader", json=["consume"]).status_code == 204
        yield running
        assert "Traceback" not in running.stderr


def admin(broker: RunningBroker, role: str) -> httpx.Client:
    return httpx.Client(base_url=broker.http_url, headers={"Authorization": f"Bearer {token(role)}"}, timeout=60)


def official(broker: RunningBroker, role: str) -> pulsar.Client:
    return pulsar.Client(
        broker.service_url,
        authentication=pulsar.AuthenticationToken(token(role)),
        operation_timeout_seconds=SOON_S,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )


def test_the_official_client_does_what_its_role_may(broker: RunningBroker) -> None:
    """A producer and a consumer of two roles."""
    with closing(official(broker, "writer")) as writer, closing(official(broker, "reader")) as reader:
        consumer = reader.subscribe(TOPIC, "s", initial_position=pulsar.InitialPosition.Earliest)
        writer.create_producer(TOPIC).send(b"hello")
        message = consumer.receive(60_000)
        assert message.data() == b"hello"
        consumer.acknowledge(message)
        consumer.close()


@pytest.mark.parametrize(
    ("role", "action"),
    [
        ("reader", lambda client: client.create_producer(TOPIC)),
        ("writer", lambda client: client.subscribe(TOPIC, "s")),
        ("writer", lambda client: client.create_reader(TOPIC, pulsar.MessageId.earliest)),
        ("nobody", lambda client: client.create_producer(TOPIC)),
        ("nobody", lambda client: client.subscribe(TOPIC, "s")),
        ("nobody", lambda client: client.get_topic_partitions(TOPIC)),
    ],
)
def test_the_official_client_is_told_what_its_role_may_not(
    broker: RunningBroker, role: str, action: Callable[[pulsar.Client], Any]
) -> None:
    """By the error of its own for it, which it does not try again."""
    with closing(official(broker, role)) as client, pytest.raises(pulsar.AuthorizationError):
        action(client)


def test_our_client_is_told_what_its_role_may_not(broker: RunningBroker) -> None:
    """The same for producing, consuming and looking up."""
    with Client(broker.service_url, authentication=AuthenticationToken(token("reader"))) as client:
        with pytest.raises(AuthorizationError, match="Client is not authorized to Produce"):
            client.create_producer(TOPIC)
        client.subscribe(TOPIC, "mine").close()
    with Client(broker.service_url, authentication=AuthenticationToken(token("writer"))) as client:
        client.create_producer(TOPIC).close()
        with pytest.raises(AuthorizationError, match="Client is not authorized to subscribe"):
            client.subscribe(TOPIC, "mine")
    with (
        Client(broker.service_url, authentication=AuthenticationToken(token("nobody"))) as client,
        pytest.raises(AuthorizationError, match="Client is not authorized to"),
    ):
        client.create_producer(TOPIC)


def test_the_official_client_fails_when_its_right_is_taken_away(broker: RunningBroker) -> None:
    """And works again when it is given back."""
    topic = f"{TOPIC}-taken"
    with closing(official(broker, "temp")) as client, admin(broker, ROOT) as http:
        assert http.post(f"{PERMISSIONS}/temp", json=["produce"]).status_code == 204
        producer = client.create_producer(topic, send_timeout_millis=2000)
        producer.send(b"before")
        assert http.delete(f"{PERMISSIONS}/temp").status_code == 204
        with pytest.raises(pulsar.PulsarException):
            producer.send(b"after")
        with pytest.raises(pulsar.AuthorizationError):
            client.create_producer(topic)
        assert http.post(f"{PERMISSIONS}/temp", json=["produce"]).status_code == 204
        client.create_producer(topic).send(b"again")
        stats = http.get(f"/admin/v2/{topic.replace('://', '/')}/stats").json()
        assert stats["msgInCounter"] == 2


def test_the_owner_of_the_data_directory_may_do_everything(broker: RunningBroker) -> None:
    """No role is asked for its rights where a client can read all files; but it speaks for nobody else."""
    owners = token_of(broker.data_dir)
    assert owners is not None
    headers = {"Authorization": f"Bearer {owners.reveal()}"}
    with httpx.Client(base_url=broker.http_url, headers=headers) as http:
        assert http.get("/admin/v2/tenants").json() == ["public"]
        assert http.get("/admin/v2/tenants", headers={"X-Original-Principal": ROOT}).status_code == 401
    with Client(broker.service_url, authentication=AuthenticationToken(owners.reveal())) as client:
        client.create_producer(TOPIC).close()


def test_the_audit_log_has_refusals_and_changes_and_no_secrets(tmp_path: Path) -> None:
    """By wire and by REST; what is read, and what clients send, is not in it."""
    rights = {"authorizationEnabled": True, "superUserRoles": [ROOT], "proxyRoles": ["proxy"]}
    with RunningBroker(tmp_path / "data", settings(tmp_path, **rights)) as broker:
        with admin(broker, ROOT) as http:
            assert http.post(f"{PERMISSIONS}/writer?password=hidden", json=["produce"]).status_code == 204
            assert http.put("/admin/v2/persistent/public/default/orders", json={"secret": "hidden"}).status_code == 204
            assert http.put("/admin/v2/persistent/public/default/orders").status_code == 409
            assert http.get("/admin/v2/persistent/public/default/orders/stats").status_code == 200
        with admin(broker, "writer") as http:
            assert http.get("/admin/v2/tenants").status_code == 401
        with admin(broker, "proxy") as http:
            assert http.get("/admin/v2/tenants", headers={"X-Original-Principal": "writer"}).status_code == 401
            assert http.get("/admin/v2/clusters").status_code == 401
        with httpx.Client(base_url=broker.http_url) as http:
            for credentials in (
                {},
                {"Authorization": "Bearer hidden"},
                {"Authorization": "Basic aGlkZGVuOmhpZGRlbg=="},
            ):
                assert http.get("/admin/v2/tenants", headers=credentials).status_code == 401
        with closing(official(broker, "writer")) as client:
            client.create_producer(TOPIC).send(b"hidden")
            with pytest.raises(pulsar.AuthorizationError):
                client.subscribe(TOPIC, "s")
    path = tmp_path / "data" / "audit.log"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text(encoding="utf-8")
    assert "hidden" not in text
    assert token("writer") not in text
    events = [json.loads(line) for line in text.splitlines()]
    assert all(event.pop("time") and event.pop("address").startswith("127.0.0.1") for event in events)
    place = "/admin/v2/persistent/public/default/orders"
    made = {
        "verdict": "allowed",
        "role": ROOT,
        "method": "PUT",
        "operation": "CREATE_TOPIC",
        "resource": TOPIC,
        "path": place,
    }
    asked = {"verdict": "refused", "method": "GET", "operation": "LIST_TENANTS", "resource": "cluster"}
    tenants = {"path": "/admin/v2/tenants", "status": 401}
    assert events == [
        {
            "verdict": "allowed",
            "role": ROOT,
            "method": "POST",
            "operation": "GRANT_PERMISSION",
            "resource": "public/default",
            "path": f"{PERMISSIONS}/writer",
            "status": 204,
        },
        {**made, "status": 204},
        {**made, "status": 409},
        {**asked, **tenants, "role": "writer"},
        {**asked, **tenants, "role": "proxy", "originalRole": "writer"},
        {"verdict": "refused", "role": "proxy", "method": "GET", "resource": "cluster", "path": "/admin/v2/clusters"},
        {"verdict": "refused", "method": "AUTHENTICATE"},
        {"verdict": "refused", "method": "AUTHENTICATE", "operation": "token"},
        {"verdict": "refused", "method": "AUTHENTICATE", "operation": "basic"},
        {"verdict": "refused", "role": "writer", "method": "SUBSCRIBE", "resource": f"{TOPIC} subscription s"},
    ]
