# SPDX-License-Identifier: Apache-2.0
"""A measured broker with authentication and rights, furnished with everything that an attack could change.

Owns the roles, the tenants and the state as a superuser sees it; nothing of what is sent to the broker.

    tenant kept   topics, partitions, subscriptions with backlog, policies, grants: nobody but a superuser may change it
    tenant open   namespace made, in which role maker may produce
    tenant mine   administered by role boss
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.flood.common import entry
from tests.flood.memory import Opens
from tests.flood.target import Target
from tests.fuzz.commands import Words
from tests.fuzz.schema_texts import EVOLVED
from tests.server.credentials import token
from tests.server.rights_world import Http

SUPERUSER: Final = "root"
MAKER: Final = "maker"
BOSS: Final = "boss"
NOBODY: Final = "nobody"
USER: Final = "basil"
"""The role of ``credentials`` that has a password; it has no rights."""

NAMESPACES: Final = ("kept/a", "kept/b", "open/made", "mine/own")

_SCHEMA: Final = {"type": "AVRO", "schema": EVOLVED[0].decode(), "properties": {}}
_BACKLOG: Final = 3
_WATCHER: Final = "honest"
"""The topic of the client who watches, in public/default: the only one that changes meanwhile."""

_VARYING: Final = re.compile("[Rr]ate|Throughput|Age|averageMsgSize|pendingReadOps")
"""Figures that change by themselves."""

State = dict[str, Any]
"""Answers of the admin REST by their paths."""


class World:
    """The broker, and its superuser."""

    def __init__(self, directory: Path) -> None:
        settings = {
            "authorizationEnabled": True,
            "anonymousUserRole": "",
            "superUserRoles": [SUPERUSER],
            "proxyRoles": ["proxy"],
            "brokerDeduplicationEnabled": False,
            "logLevel": "warning",
        }
        self.target = Target(directory, settings, token(SUPERUSER))
        self._read_bytes = 0
        self._root = self.http(SUPERUSER)
        try:
            self._furnish()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._root.close()
        self.target.close()

    def http(self, role: str) -> Http:
        """A client of the admin REST; role "" is that of a stranger."""
        return Http(self.target.http_url, {"Authorization": f"Bearer {token(role)}"} if role else {})

    # -- what there is

    def _furnish(self) -> None:
        for tenant, admin in (("kept", "keeper"), ("open", "keeper"), ("mine", BOSS)):
            self._put(f"tenants/{tenant}", {"adminRoles": [admin], "allowedClusters": ["standalone"]})
        for namespace in NAMESPACES:
            self._put(f"namespaces/{namespace}", None)
            self._put(f"persistent/{namespace}/plain", None)
            self._put(f"persistent/{namespace}/parted/partitions", 2)
            self._put(f"non-persistent/{namespace}/plain", None)
            for topic in ("plain", "parted"):
                self._put(f"persistent/{namespace}/{topic}/subscription/s", "earliest")
            self._post(f"namespaces/{namespace}/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 10})
            self._post(f"namespaces/{namespace}/permissions/somebody", ["consume"])
            self._post(f"persistent/{namespace}/plain/maxProducers", 7)
            answer = self._root.ask("POST", f"/admin/v2/schemas/{namespace}/plain/schema", _SCHEMA)
            assert answer.status == 200, answer
        self._post(f"namespaces/open/made/permissions/{MAKER}", ["produce"])
        for namespace in NAMESPACES:
            for topic in ("plain", "parted-partition-0"):
                self._send(f"persistent://{namespace}/{topic}")

    def _put(self, path: str, body: object) -> None:
        answer = self._root.ask("PUT", f"/admin/v2/{path}", body)
        assert answer.status == 204, (path, answer)

    def _post(self, path: str, body: object) -> None:
        answer = self._root.ask("POST", f"/admin/v2/{path}", body)
        assert answer.status == 204, (path, answer)

    def _send(self, topic: str) -> None:
        with RawClient(self.target.service_url, token=self.target.token) as client:
            must_succeed(client.open_producer(topic))
            for number in range(_BACKLOG):
                client.send_entry(0, number, entry())
                assert client.next_command().type == BaseCommand.SEND_RECEIPT

    # -- the state

    def state(self, but: str = "") -> State:
        """Everything that a superuser sees, except the inside of tenant or namespace ``but``."""
        self._root.connection.close()  # the broker ends one that was silent for long
        found: State = {}
        self._note(found, "clusters", "brokers/configuration/values")
        for tenant in self._note(found, "tenants"):
            if tenant != but:
                self._note(found, f"tenants/{tenant}")
                for namespace in self._note(found, f"namespaces/{tenant}"):
                    if namespace != but:
                        self._note_namespace(found, namespace)
        return found

    def _note(self, found: State, *paths: str) -> Any:
        """The answer to the last one of ``paths``."""
        for path in paths:
            answer = self._root.ask("GET", f"/admin/v2/{path}")
            found[path] = [answer.status, _lasting(answer.content)]
        return sorted(answer.content) if isinstance(answer.content, list) else answer.content

    def _note_namespace(self, found: State, namespace: str) -> None:
        self._note(found, f"namespaces/{namespace}", f"namespaces/{namespace}/permissions")
        for domain in ("persistent", "non-persistent"):
            for topic in self._note(found, f"{domain}/{namespace}/partitioned"):
                base = f"{domain}/{namespace}/{_local(topic)}"
                self._note(found, f"{base}/partitions", f"{base}/permissions")
            for topic in self._note(found, f"{domain}/{namespace}"):
                base = f"{domain}/{namespace}/{_local(topic)}"
                if _local(topic) == _WATCHER:
                    continue
                self._note(found, f"{base}/stats", f"{base}/permissions", f"{base}/maxProducers")
                self._note(found, f"schemas/{namespace}/{_local(topic)}/schemas")
                if domain == "persistent":
                    self._note(found, f"{base}/internalStats")

    def opens(self, clients: int) -> Opens:
        """What may be open at a time, for the sum of memory: ``clients`` with a few things each, and every topic."""
        topics = subscriptions = 0
        for path, (_status, content) in self.state().items():
            if path.endswith("/stats"):
                topics += 1
                subscriptions += len(content.get("subscriptions", ()))
        few = 4 * clients
        return Opens(
            connections=few,
            consumers=few,
            producers=few,
            topics=topics,
            subscriptions=subscriptions,
            messages_out=10_000,
        )

    def complaints(self) -> list[str]:
        """Lines of the log, since the last call, that tell of a bug; a trace follows its line."""
        with self.target.log.open("rb") as log:
            log.seek(self._read_bytes)
            lines = log.read().decode(errors="replace").splitlines(keepends=True)
            self._read_bytes = log.tell()
        return list(_bugs(lines))

    def serves(self) -> bool:
        """Whether the process lives and serves a client with rights."""
        with RawClient(self.target.service_url, token=self.target.token) as client:
            must_succeed(client.open_producer(f"public/default/{_WATCHER}"))
            client.send_entry(0, 0, entry())
            return client.next_command().type == BaseCommand.SEND_RECEIPT


def difference(before: Any, after: Any) -> str:
    """The place of the first answer, or part of it, that is not equal, with both values; or ""."""
    if before == after:
        return ""
    if isinstance(before, dict) and isinstance(after, dict):
        names = sorted({*before, *after})
        name = next(each for each in names if before.get(each) != after.get(each))
        return f"{name}: {difference(before.get(name), after.get(name))}"
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return next(filter(None, map(difference, before, after)))
    return f"{before} is now {after}"


def words_of(namespaces: tuple[str, ...], roles: tuple[str, ...]) -> Words:
    """The words of clients that know ``namespaces`` and have the credentials of ``roles``; "" is garbage."""
    topics = [
        f"{domain}://{namespace}/{topic}"
        for namespace in namespaces
        for domain in ("persistent", "non-persistent")
        for topic in ("plain", "parted", "parted-partition-0", "parted-partition-1")
    ]
    proofs = tuple(token(role).encode() if role else b"eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0." for role in roles)
    return Words(tuple(topics), namespaces, ("s", "t"), ("token", "token", "basic", "tls", "none"), proofs)


def _local(topic: str) -> str:
    """The last part of a topic's name, quoted for a path."""
    return quote(topic.split("/", 4)[4], safe="")


def _lasting(content: Any) -> Any:
    """An answer without figures that change by themselves."""
    if isinstance(content, dict):
        return {name: _lasting(value) for name, value in content.items() if not _VARYING.search(name)}
    if isinstance(content, list):
        return [_lasting(value) for value in content]
    return content


def _bugs(lines: list[str]) -> Iterator[str]:
    found = ""
    for line in lines:
        if line.startswith(" ") and found:
            found += line
            continue
        if found:
            yield found
        found = line if _BUG.search(line) else ""
    if found:
        yield found


_BUG: Final = re.compile(r" (ERROR|CRITICAL) |Traceback|bug|never awaited|never retrieved")
