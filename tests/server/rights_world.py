# SPDX-License-Identifier: Apache-2.0
"""A broker with authorization inside the test's own process, clients of any role, and the grants of the matrix."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from broker_core.base.limits import PROTOCOL_VERSION
from broker_core.base.policies import AuthPolicies
from broker_core.base.settings import Settings
from broker_core.testing.raw_client import RawClient
from broker_core.testing.sim_disk import SimDisk
from broker_core.wire import commands
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.credentials import SECRET, token
from tests.server.rights_model import SUPERUSER, Book
from tests.server.server_thread import ServerThread

SECURED: Final[dict[str, Any]] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "token_secret_key": f"data:;base64,{base64.b64encode(SECRET).decode()}",
    "super_user_roles": (SUPERUSER, "proxy-root"),
    "proxy_roles": ("proxy", "proxy-root"),
}

DOMAINS: Final = ("persistent", "non-persistent")
PARTED: Final = 2


class Who(NamedTuple):
    """A client: the role of its token ("": it has none), and the role that it says it speaks for."""

    role: str
    original: str = ""

    @property
    def fits(self) -> bool:
        """Whether it may speak for that role."""
        if self.role.startswith("proxy"):
            return bool(self.original) and not self.original.startswith("proxy")
        return self.original in ("", self.role)


WHO: Final = {
    "nobody": Who("nobody"),
    "produces everywhere": Who("prod-ns"),
    "consumes everywhere": Who("cons-ns"),
    "produces to topics": Who("prod-topic"),
    "consumes from topics": Who("cons-topic"),
    "has one partition": Who("one-part"),
    "may use a closed subscription": Who("vip"),
    "runs functions": Who("funcs"),
    "administers the tenant": Who("boss"),
    "administers another tenant": Who("stranger"),
    "superuser": Who(SUPERUSER),
    "a proxy for nobody in particular": Who("proxy-root"),
    "a proxy for a role without rights": Who("proxy-root", "nobody"),
    "a proxy for a consumer": Who("proxy-root", "cons-ns"),
    "a proxy for an administrator": Who("proxy-root", "boss"),
    "a proxy without rights for an administrator": Who("proxy", "boss"),
    "a proxy for a proxy": Who("proxy-root", "proxy"),
    "no proxy, for a superuser": Who("nobody", SUPERUSER),
}


def grants_of(namespace: str) -> AuthPolicies:
    """The grants of the matrix, the same in each namespace."""
    of_topics: dict[str, dict[str, tuple[Any, ...]]] = {
        f"{domain}://{namespace}/{topic}": {"prod-topic": ("produce",), "cons-topic": ("consume",)}
        for domain in DOMAINS
        for topic in ("plain", "parted")
    }
    for domain in DOMAINS:
        of_topics[f"{domain}://{namespace}/parted-partition-1"] = {"one-part": ("produce", "consume")}
    return AuthPolicies(
        namespace_auth={
            "prod-ns": ("produce",),
            "cons-ns": ("consume",),
            "vip": ("consume",),
            "funcs": ("functions", "sources", "sinks", "packages"),
        },
        destination_auth=of_topics,
        subscription_auth_roles={"closed": ("vip",)},
    )


def book_of(namespace: str) -> Book:
    """The same for the model."""
    return Book(grants_of(namespace), wildcards=False)


class Answer(NamedTuple):
    """Status, and the reason of a refusal or the JSON."""

    status: int
    content: Any

    @property
    def reason(self) -> str:
        return str(self.content.get("reason", "")) if isinstance(self.content, dict) else ""


class Http:
    """One HTTP connection of one client."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        self.headers = headers

    def ask(self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request whose body is ``body`` as JSON, and read its answer."""
        sent = None if body is None else json.dumps(body)
        self.connection.request(method, path, sent, {**self.headers, **(headers or {})})
        response = self.connection.getresponse()
        content = response.read()
        try:
            return Answer(response.status, json.loads(content) if content else None)
        except ValueError:
            return Answer(response.status, content)

    def close(self) -> None:
        self.connection.close()


@dataclass
class Secured:
    """A running broker with authorization, and who may come to it."""

    server: ServerThread
    disk: SimDisk

    def http(self, who: Who) -> Http:
        headers = {}
        if who.role:
            headers["Authorization"] = f"Bearer {token(who.role)}"
        if who.original:
            headers["X-Original-Principal"] = who.original
        return Http(self.server.http_url, headers)

    @contextmanager
    def raw(self, who: Who) -> Iterator[RawClient]:
        """A connection that has said CONNECT, and was let in."""
        with RawClient(self.server.service_url, connect=False) as client:
            answer = client.ask(hello(who))
            assert answer.HasField("connected"), answer
            yield client


def hello(who: Who) -> BaseCommand:
    """CONNECT of a client."""
    command = commands.connect("raw", PROTOCOL_VERSION)
    if who.role:
        command.connect.auth_method_name = "token"
        command.connect.auth_data = token(who.role).encode()
    if who.original:
        command.connect.original_principal = who.original
    return command


@contextmanager
def secured(**settings: Any) -> Iterator[Secured]:
    """A broker with authorization, without any grants."""
    disk = SimDisk()
    with ServerThread(disk, Settings(**{**SECURED, **settings})) as server:
        yield Secured(server, disk)


def furnish(world: Secured, *namespaces: str) -> None:
    """Make the tenants, and ``namespaces`` with the grants of the matrix, topics and subscriptions."""
    root = world.http(Who(SUPERUSER))
    for tenant, admin in (("acme", "boss"), ("other", "stranger")):
        body = {"adminRoles": [admin], "allowedClusters": ["standalone"]}
        assert root.ask("PUT", f"/admin/v2/tenants/{tenant}", body).status == 204
    for namespace in namespaces:
        grants = msgspec.to_builtins(grants_of(namespace))
        assert root.ask("PUT", f"/admin/v2/namespaces/{namespace}", {"auth_policies": grants}).status == 204
        assert root.ask("PUT", f"/admin/v2/persistent/{namespace}/kept").status == 204
        for domain in DOMAINS:
            base = f"/admin/v2/{domain}/{namespace}"
            assert root.ask("PUT", f"{base}/plain").status == 204
            assert root.ask("PUT", f"{base}/parted/partitions", PARTED).status == 204
        for topic in ("plain", "parted"):
            for subscription in ("open", "closed"):
                path = f"/admin/v2/persistent/{namespace}/{topic}/subscription/{subscription}"
                assert root.ask("PUT", path, "earliest").status == 204
    root.close()
