# SPDX-License-Identifier: Apache-2.0
"""The calls of Pulsar's admin REST that the command line and the examples need; works with any Pulsar.

Blocking, over the standard library. Statuses become the errors of the common tree, with the broker's ``reason``.
Source: Pulsar docs, "Admin REST API - persistent topics", "- namespaces".
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NamedTuple, Self
from urllib.parse import quote

from broker_core.base.errors import (
    AuthenticationError,
    AuthorizationError,
    PulsarishError,
    RemoteProtocolError,
    TopicNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.positions import MessageId
from broker_core.base.secret import Secret
from broker_core.client.admin_transport import AdminTransport
from broker_core.client.credentials.authentication import Authentication
from broker_core.client.credentials.tls import TlsSettings

_NO_RIGHT: Final = "unauthorized"

_TLS_DEFAULT: Final = TlsSettings()

_NO_QUOTA: Final = {"limitSize": -1, "limitTime": -1}


class AdminRefusedError(PulsarishError):
    """The broker answered with a status that has no error of its own. ``status`` is the HTTP status."""

    status = 0


class SeenEntry(NamedTuple):
    """An entry that was looked at. ``is_later_chunk``: it is a part of a message, and not the first."""

    message_id: MessageId
    is_later_chunk: bool


class AdminApi:
    """An admin port, and those to which it redirects. Not thread-safe. Of its 40 methods all but the last few are one
    REST call each, and what they share is a path: objects for each kind of resource would only be longer to write."""

    def __init__(
        self,
        http_url: str,
        *,
        timeout_s: float,
        authentication: Authentication | None = None,
        tls: TlsSettings = _TLS_DEFAULT,
        given_by: str = "",
    ) -> None:
        """``authentication`` and ``tls`` as those of a client; ConfigError if they cannot be used. ``given_by``: the
        option that names the URL, for errors."""
        self._url = http_url
        self._authentication = authentication
        self._transport = AdminTransport(http_url, timeout_s, tls, given_by)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._transport.close()

    # -- topics

    def topics(self, namespace: NamespaceName) -> dict[TopicName, int]:
        """Every topic with its number of partitions, 0 for one without partitions; sorted by name."""
        base = f"/admin/v2/persistent/{_path(namespace.tenant, namespace.local)}"
        partitioned = [TopicName.parse(name) for name in self._get(f"{base}/partitioned")]
        found = {topic: self.partitions(topic) for topic in partitioned}
        for name in map(TopicName.parse, self._get(base)):
            if name.base not in found and not name.is_system:
                found[name] = 0
        return dict(sorted(found.items()))

    def partitions(self, topic: TopicName) -> int:
        """Number of partitions; 0 if the topic has none, or does not exist."""
        return int(self._get(f"{_topic_path(topic)}/partitions")["partitions"])

    def create_topic(self, topic: TopicName, partitions: int) -> None:
        """Create it with this many partitions, or without partitions for 0."""
        path = f"{_topic_path(topic)}/partitions" if partitions else _topic_path(topic)
        self._call("PUT", path, str(partitions) if partitions else None)

    def delete_topic(self, topic: TopicName, *, force: bool) -> None:
        """Delete it with all its data; ``force`` also disconnects those who use it."""
        path = f"{_topic_path(topic)}/partitions" if self.partitions(topic) else _topic_path(topic)
        self._call("DELETE", f"{path}?force={str(force).lower()}")

    def topic_stats(self, topic: TopicName, partitions: int) -> dict[str, Any]:
        """Pulsar's stats object; with ``partitions`` the sums, and each partition's under the key ``partitions``."""
        if partitions:
            return dict(self._get(f"{_topic_path(topic)}/partitioned-stats?perPartition=true"))
        return dict(self._get(f"{_topic_path(topic)}/stats"))

    def internal_stats(self, topic: TopicName, partitions: int) -> dict[str, Any]:
        """Pulsar's object of ledgers and cursors; with ``partitions`` one for each under the key ``partitions``."""
        what = "partitioned-internalStats" if partitions else "internalStats"
        return dict(self._get(f"{_topic_path(topic)}/{what}"))

    def grow_partitions(self, topic: TopicName, partitions: int) -> None:
        """Give a partitioned topic this many partitions; it can only become more."""
        self._call("POST", f"{_topic_path(topic)}/partitions", str(partitions))

    def unload(self, topic: TopicName) -> None:
        """Disconnect all clients of the topic, which come back, and let it go from the broker's memory."""
        self._call("PUT", f"{_topic_path(topic)}/unload")

    def terminate(self, topic: TopicName) -> dict[TopicName, MessageId]:
        """End the topic for good; the last message of the topic, or of each partition (entry -1: there is none)."""
        if self.partitions(topic):
            ends = json.loads(self._call("POST", f"{_topic_path(topic)}/terminate/partitions"))
            return {topic.partition(int(number)): _message_id(ends[number]) for number in sorted(ends, key=int)}
        return {topic: _message_id(json.loads(self._call("POST", f"{_topic_path(topic)}/terminate")))}

    # -- namespaces

    def namespaces(self, tenant: str) -> list[NamespaceName]:
        """The namespaces of one tenant, sorted."""
        return sorted(map(NamespaceName.parse, self._get(f"/admin/v2/namespaces/{_path(tenant)}")))

    def create_namespace(self, name: NamespaceName) -> None:
        """Create it; its tenant must exist."""
        self._call("PUT", _namespace_path(name))

    def create_tenant(self, tenant: str) -> None:
        """Create it, for all clusters that there are."""
        self._call("PUT", f"/admin/v2/tenants/{_path(tenant)}", json.dumps({"allowedClusters": self._clusters()}))

    def tenants(self) -> list[str]:
        """All of them, sorted."""
        return sorted(map(str, self._get("/admin/v2/tenants")))

    def has_tenant(self, tenant: str) -> bool:
        """Whether there is a tenant of this name."""
        return tenant in self.tenants()

    def delete_namespace(self, name: NamespaceName, *, force: bool) -> None:
        """Delete it; ``force``: with all its topics, where the broker's settings allow that."""
        self._call("DELETE", f"{_namespace_path(name)}?force={str(force).lower()}")

    def _clusters(self) -> list[str]:
        # Pulsar lists the cluster of global configuration too, for which a tenant cannot be.
        return [str(name) for name in self._get("/admin/v2/clusters") if name != "global"]

    # -- policies of a topic or namespace; names are the last parts of Pulsar's paths, such as retention

    def policy(self, of: TopicName | NamespaceName, name: str, *, applied: bool = False) -> Any:
        """The policy as JSON; with ``applied`` the one in force for the topic, wherever it was set. None: there is
        none."""
        path = "backlogQuotaMap" if name == "backlogQuota" else _path(name)
        value = _json_or_none(self._call("GET", f"{_owner_path(of)}/{path}?applied={str(applied).lower()}"))
        if name == "backlogQuota" and value and not applied:  # a namespace also shows what was never set
            value = {kind: quota for kind, quota in value.items() if quota != {**quota, **_NO_QUOTA}}
        return None if value in ({}, []) else value

    def set_policy(self, of: TopicName | NamespaceName, name: str, value: Any) -> None:
        """Set one policy to a JSON value; of ``backlogQuota`` to a map of types to quotas, as it is read."""
        path = f"{_owner_path(of)}/{_path(name)}"
        if name == "messageTTL" and isinstance(of, TopicName):
            self._call("POST", f"{path}?messageTTL={quote(json.dumps(value), safe='')}")
        elif name == "backlogQuota":
            for kind, quota in dict(value).items():
                self._call("POST", f"{path}?backlogQuotaType={quote(kind, safe='')}", json.dumps(quota))
        else:
            self._call("POST", path, json.dumps(value))

    def remove_policy(self, of: TopicName | NamespaceName, name: str) -> None:
        """Leave the policy to the level above again: of a topic to the namespace, of that to the broker."""
        path = f"{_owner_path(of)}/{_path(name)}"
        if name == "deduplicationSnapshotInterval" and isinstance(of, NamespaceName):
            self._call("POST", path, "null")  # an Apache Pulsar takes the last part of a DELETE for something else
            return
        kinds = ("destination_storage", "message_age") if name == "backlogQuota" else ("",)
        for kind in kinds:
            self._call("DELETE", f"{path}?backlogQuotaType={kind}" if kind else path)

    # -- subscriptions

    def create_subscription(self, topic: TopicName, subscription: str, start: str | MessageId) -> None:
        """Create it on the topic (on every partition) at ``earliest``, ``latest`` or right before a message."""
        body = start if isinstance(start, str) else _id_json(start)
        self._call("PUT", _subscription_path(topic, subscription), json.dumps(body))

    def skip_messages(self, topic: TopicName, subscription: str, count: int) -> None:
        """Pass over the next ``count`` unacknowledged entries; not of a partitioned topic."""
        self._call("POST", f"{_subscription_path(topic, subscription)}/skip/{count}")

    def clear_backlog(self, topic: TopicName, subscription: str) -> None:
        """Pass over everything."""
        self._call("POST", f"{_subscription_path(topic, subscription)}/skip_all")

    def expire_messages(self, topic: TopicName, subscription: str, older_than_s: int) -> None:
        """Pass over the messages at the head of the backlog that are older than so many seconds."""
        self._call("POST", f"{_subscription_path(topic, subscription)}/expireMessages/{older_than_s}")

    def reset_to_time(self, topic: TopicName, subscription: str, time_ms: int) -> None:
        """Stand right before the first message published at or after this time, milliseconds since the epoch."""
        self._call("POST", f"{_subscription_path(topic, subscription)}/resetcursor/{time_ms}")

    def reset_to_message(self, topic: TopicName, subscription: str, message: MessageId) -> None:
        """Stand right before this message; not of a partitioned topic."""
        self._call("POST", f"{_subscription_path(topic, subscription)}/resetcursor", json.dumps(_id_json(message)))

    def delete_subscription(self, topic: TopicName, subscription: str, *, force: bool) -> None:
        """Delete the subscription on the topic (on every partition), with its position."""
        self._call("DELETE", f"{_subscription_path(topic, subscription)}?force={str(force).lower()}")

    # -- where messages lie

    def peeked_entry(self, topic: TopicName, subscription: str, place: int) -> SeenEntry | None:
        """The entry at this place, from 1 on, of a backlog; None: it is shorter. Not of a partitioned topic."""
        try:
            return self._seen(f"{_subscription_path(topic, subscription)}/position/{place}")
        except TopicNotFoundError:
            return None

    def examined_entry(self, topic: TopicName, origin: str, place: int) -> SeenEntry:
        """The entry at this place, from 1 on, counted from ``earliest`` or ``latest``; not of a partitioned topic."""
        return self._seen(f"{_topic_path(topic)}/examinemessage?initialPosition={origin}&messagePosition={place}")

    def _seen(self, path: str) -> SeenEntry:
        headers, _ = self._exchange("GET", path)
        try:
            where = MessageId.parse(headers["X-Pulsar-Message-ID"] or "")
        except ValueError as error:
            raise RemoteProtocolError(f"{self._url}{path} did not say which entry it is") from error
        return SeenEntry(where, (headers["X-Pulsar-chunk-id"] or headers["X-Pulsar-PROPERTY-CHUNK-ID"] or "0") != "0")

    # -- delayed messages; Pulsar has no such paths

    def due_times(self, topic: TopicName, step_ms: int) -> dict[int, int]:
        """Delayed messages by due time: start of each step in milliseconds since the epoch -> messages."""
        due = self._get(f"{_topic_path(topic)}/delayedMessages?stepMillis={step_ms}")["due"]
        return {int(time_ms): count for time_ms, count in due.items()}

    def cancel_delayed(self, topic: TopicName, subscription: str, message: MessageId) -> None:
        """Take a delayed message back for one subscription; TopicNotFoundError if it does not wait for it."""
        path = f"{_subscription_path(topic, subscription)}/delayedMessages/{message.ledger}/{message.entry}"
        self._call("DELETE", path)

    # -- broker

    def health(self) -> str:
        """The health that the broker tells: "ok", or which of its data is damaged; an error of the common tree if it is
        not well."""
        return _text_of(self._call("GET", "/admin/v2/brokers/health"))

    def broker_of(self, topic: TopicName, *, tls: bool) -> str:
        """The service URL of the broker that serves ``topic``, for connections with or without TLS; "": it has none."""
        path = f"/lookup/v2/topic/{topic.domain}/{_path(topic.tenant, topic.namespace, topic.local)}"
        answer = self._get(path)
        if not isinstance(answer, dict):
            raise RemoteProtocolError(f"{self._url}{path} did not say which broker it is")
        names = ("brokerUrlTls", "brokerUrlSsl") if tls else ("brokerUrl",)  # Apache Pulsar writes the older name, too.
        return next((str(answer[name]) for name in names if answer.get(name)), "")

    # -- transport

    def _get(self, path: str) -> Any:
        content = self._call("GET", path)
        try:
            return json.loads(content)
        except ValueError as error:
            raise RemoteProtocolError(f"{self._url}{path} did not answer with JSON: {error}") from error

    def _call(self, method: str, path: str, body: str | None = None) -> bytes:
        return self._exchange(method, path, body)[1]

    def _exchange(self, method: str, path: str, body: str | None = None) -> tuple[Message, bytes]:
        """Headers and content of the answer; the errors of the common tree for what is none."""
        authentication = self._authentication
        credential = None if authentication is None else authentication.asked()
        answer, content = self._asked(method, path, body, credential)
        if answer.status == HTTPStatus.UNAUTHORIZED and authentication is not None:
            newer = authentication.asked(instead_of=credential)
            if newer != credential:
                answer, content = self._asked(method, path, body, newer)
        if answer.status >= 300:
            raise _refusal(answer.status, content, f"{method} {self._url}{path}", authentication, credential)
        return answer.headers, content

    def _asked(
        self, method: str, path: str, body: str | None, credential: Secret | None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers: dict[str, str] = {"Content-Type": "application/json"} if body is not None else {}
        if self._authentication is not None and credential is not None:
            headers["X-Pulsar-Auth-Method-Name"] = self._authentication.method
            if said := self._authentication.http_header(credential):
                headers["Authorization"] = said
        return self._transport.ask(method, path, body, headers)


def _topic_path(topic: TopicName) -> str:
    return f"/admin/v2/{topic.domain}/{_path(topic.tenant, topic.namespace, topic.local)}"


def _namespace_path(name: NamespaceName) -> str:
    return f"/admin/v2/namespaces/{_path(name.tenant, name.local)}"


def _owner_path(of: TopicName | NamespaceName) -> str:
    return _topic_path(of) if isinstance(of, TopicName) else _namespace_path(of)


def _subscription_path(topic: TopicName, subscription: str) -> str:
    """Pulsar decodes the name of a subscription twice, the second time with a plus sign as a blank; of a topic once."""
    return f"{_topic_path(topic)}/subscription/{_path(_path(subscription))}"


def _json_or_none(content: bytes) -> Any:
    """An empty answer is how Pulsar says that nothing is set."""
    return json.loads(content) if content.strip() else None


def _message_id(answer: Mapping[str, int]) -> MessageId:
    return MessageId(answer["ledgerId"], answer["entryId"], answer["partitionIndex"])


def _id_json(message: MessageId) -> dict[str, int]:
    return {"ledgerId": message.ledger, "entryId": message.entry, "partitionIndex": message.partition}


def _path(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _refusal(
    status: int, content: bytes, request: str, authentication: Authentication | None, credential: Secret | None
) -> PulsarishError:
    try:
        reason = str(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError):
        reason = _text_of(content)[:200] or http.client.responses.get(status, "no reason given")
    # Pulsar also answers 401 to a role that it knows and that has no right: only then is the reason JSON of this text.
    if status == HTTPStatus.FORBIDDEN or (status == HTTPStatus.UNAUTHORIZED and _NO_RIGHT in reason.lower()):
        return AuthorizationError(f"the broker does not allow this: {reason}")
    if status == HTTPStatus.UNAUTHORIZED:
        return _unknown_client(reason, authentication, credential)
    if status == HTTPStatus.NOT_FOUND:
        return TopicNotFoundError(reason)
    refused = AdminRefusedError(f"the broker refused: {reason}", hint=f"it answered {status} to {request}")
    refused.status = status
    return refused


def _text_of(content: bytes) -> str:
    """The text of an answer that is no JSON: of a page its title."""
    text = content.decode("utf-8", "replace").strip()
    titled = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
    return titled[1].strip() if titled else text


def _unknown_client(
    reason: str, authentication: Authentication | None, credential: Secret | None
) -> AuthenticationError:
    if authentication is None or credential is None:
        return AuthenticationError(
            f"the broker does not know who you are: {reason}", hint="give a token (tokenFile) or another authentication"
        )
    why = authentication.why_refused(credential) or reason
    return AuthenticationError(f"the broker does not accept {authentication}: {why}")
