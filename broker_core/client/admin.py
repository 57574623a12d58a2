# SPDX-License-Identifier: Apache-2.0
"""The calls of Pulsar's admin REST that the command line and the examples need; works with any Pulsar.

Blocking, over the standard library. Statuses become the errors of the common tree, with the broker's ``reason``.
Source: Pulsar docs, "Admin REST API - persistent topics", "- namespaces".
"""

from __future__ import annotations

import html
import http.client
import json
import re
import ssl
from collections.abc import Mapping
from email.message import Message
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self
from urllib.parse import SplitResult, quote, urlsplit

from broker_core.base.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    ConnectionLostError,
    IncompatibleSchemaError,
    OperationTimeoutError,
    PulsarishError,
    RemoteProtocolError,
    TopicNotFoundError,
)
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.positions import MessageId
from broker_core.base.secret import Secret
from broker_core.client.credentials.authentication import HINT_NOBODY, Authentication, OwnersToken
from broker_core.client.credentials.tls import TlsSettings, tls_failure
from broker_core.schemas.compatibility import Entry
from broker_core.schemas.definition import InvalidSchemaError
from broker_core.schemas.info import SchemaInfo
from broker_core.schemas.rest_forms import from_rest, to_rest
from broker_core.wire.heads import TxnId

_NO_RIGHT: Final = re.compile("unauthorized|super-user", re.IGNORECASE)

_TLS_DEFAULT: Final = TlsSettings()

_NO_QUOTA: Final = {"limitSize": -1, "limitTime": -1}

_PUT: Final = ("schemaCompatibilityStrategy", "schemaAutoUpdateCompatibilityStrategy")
"""Policies that are set with PUT."""

_SCHEMA_REFUSALS: Final = {409: IncompatibleSchemaError, 422: InvalidSchemaError}
"""Errors of the statuses that refuse a schema."""

_REFUSED: Final = "the broker refused: "

_TRANSACTIONS: Final = "/admin/v3/transactions"

REDIRECTS_MAX: Final = 5
"""Redirects of one request: one leads to the owner of a bundle; more only while that changes hands."""

_ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024
"""A stats answer of a large namespace is megabytes; more than this is not an admin answer."""

_REDIRECTS: Final = (HTTPStatus.TEMPORARY_REDIRECT, HTTPStatus.PERMANENT_REDIRECT)


class AdminTransport:
    """Kept connections to the admin port ``url``, and to those to which answers redirect. Not thread-safe.

    A broker of a cluster redirects a request about a topic that another one serves. Invariant: a request that was begun
    with TLS never travels without; no error repeats a password.
    """

    def __init__(self, url: str, timeout_s: float, tls: TlsSettings, given_by: str = "") -> None:
        """ConfigError if that is no address, or ``tls`` cannot be used. ``given_by``: the option that names ``url``."""
        if "@" in url:
            raise ConfigError(
                "the admin URL names a user or a password, which is not used", hint="give an authentication beside it"
            )
        parts = _usable_parts(url)
        if parts is None:
            raise ConfigError(f'"{url}" is not an admin URL', hint="write http://HOST:PORT")
        self._first = _origin(url)
        self._timeout_s = timeout_s
        self._tls = tls
        self._which = f"the admin port ({given_by})" if given_by else "the admin port"
        self._connections = {self._first: self._connect(parts)}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(
        self, method: str, path: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer that is no redirect, with its content; the errors of the common tree where there is none."""
        url = f"{self._first}{path}"
        for _ in range(REDIRECTS_MAX + 1):
            answer, content = self._ask(method, url, body, headers)
            if answer.status not in _REDIRECTS:
                return answer, content
            url = self._next(url, answer.headers["Location"] or "")
        raise RemoteProtocolError(
            f"the request {method} {path} was redirected {REDIRECTS_MAX} times, last to {_origin(url)}",
            hint="do the brokers of the cluster agree who serves it? Try again",
        )

    def _next(self, url: str, target: str) -> str:
        """The URL to which a redirect leads."""
        if "@" in target:
            raise RemoteProtocolError(f"the admin port at {_origin(url)} redirects to a URL that names a user")
        parts = _usable_parts(target)
        if parts is None:
            raise RemoteProtocolError(
                f'the admin port at {_origin(url)} redirects to "{target}", which is no admin URL'
            )
        if parts.scheme != "https" and urlsplit(url).scheme == "https":
            raise RemoteProtocolError(
                f"the admin port at {_origin(url)} redirects to {_origin(target)}, which is without TLS",
                hint="give each broker of the cluster a webServicePortTls",
            )
        return target

    def _ask(
        self, method: str, url: str, body: str | None, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        origin, parts = _origin(url), urlsplit(url)
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            if (connection := self._connections.get(origin)) is None:
                connection = self._connections[origin] = self._connect(parts)
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            content = answer.read(_ANSWER_BYTES_MAX)
            if answer.length:  # what is missing: reading up to a size tells nothing of it
                raise http.client.IncompleteRead(content, answer.length)
            return answer, content
        except TimeoutError as error:
            raise OperationTimeoutError(
                f"the admin port at {origin} did not answer in {self._timeout_s:g} s",
                hint="give it a longer timeout, or look whether the broker is busy",
            ) from error
        except ssl.SSLError as error:
            raise tls_failure(error, f"the admin port at {origin}") from error
        except OSError as error:
            raise ConnectionLostError(
                f"no broker answers at {origin}: {error.strerror or error}",
                hint=f"start one with: pulsarish serve, or check the address of {self._which}",
            ) from error
        except http.client.HTTPException as error:
            # Its text would be whatever came instead of an answer.
            raise ConnectionLostError(
                f"no broker answers at {origin}: what came is not an answer in HTTP ({type(error).__name__})",
                hint=f"check the address of {self._which}; it is not the port of the service URL",
            ) from error

    def _connect(self, parts: SplitResult) -> http.client.HTTPConnection:
        """A connection over which nothing was sent yet."""
        assert parts.hostname is not None
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port, timeout=self._timeout_s)
        context = self._tls.context()
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self._timeout_s, context=context)


def _usable_parts(url: str) -> SplitResult | None:
    """Parts of an URL that can be asked; None if it cannot."""
    try:
        parts = urlsplit(url)
        return parts if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def _origin(url: str) -> str:
    """The scheme and the address of an URL."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


class AdminRefusedError(PulsarishError):
    """The broker answered with a status that has no error of its own. ``status`` is the HTTP status."""

    status = 0


class SeenEntry(NamedTuple):
    """An entry that was looked at. ``is_later_chunk``: it is a part of a message, and not the first."""

    message_id: MessageId
    is_later_chunk: bool


class AdminApi:
    """An admin port, and those to which it redirects. Not thread-safe. Of its 52 methods all but the last few are one
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
        self._authentication = authentication or OwnersToken(http_url)
        self._transport = AdminTransport(http_url, timeout_s, tls, given_by)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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

    def compact(self, topic: TopicName) -> None:
        """Begin to compact it, of a partitioned one all partitions. AdminRefusedError (409) while one is compacted."""
        self._call("PUT", f"{_topic_path(topic)}/compaction")

    def compaction(self, topic: TopicName) -> dict[str, str]:
        """How the last compaction went, of a topic or one partition: ``status`` and ``lastError``."""
        found: dict[str, str] = self._get(f"{_topic_path(topic)}/compaction")
        return found

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
            of_namespace = isinstance(of, NamespaceName)
            is_put = name in _PUT or (name == "compactionThreshold" and of_namespace)  # as Pulsar has it
            method = "PUT" if is_put else "POST"
            self._call(method, path, json.dumps(value))

    def remove_policy(self, of: TopicName | NamespaceName, name: str) -> None:
        """Leave the policy to the level above again: of a topic to the namespace, of that to the broker."""
        path = f"{_owner_path(of)}/{_path(name)}"
        if name == "deduplicationSnapshotInterval" and isinstance(of, NamespaceName):
            self._call("POST", path, "null")  # an Apache Pulsar takes the last part of a DELETE for something else
            return
        kinds = ("destination_storage", "message_age") if name == "backlogQuota" else ("",)
        for kind in kinds:
            self._call("DELETE", f"{path}?backlogQuotaType={kind}" if kind else path)

    # -- schemas; a topic and its partitions have one, and need not exist

    def schema(self, topic: TopicName, version: int | None = None) -> Entry:
        """A version of the topic's schema, or the last one; TopicNotFoundError if it has none."""
        which = "schema" if version is None else f"schema/{version}"
        return _schema_entry(self._get(f"{_schema_path(topic)}/{which}"))

    def schemas(self, topic: TopicName) -> list[Entry]:
        """All versions since the last deletion, oldest first."""
        return [_schema_entry(each) for each in self._get(f"{_schema_path(topic)}/schemas")["getSchemaResponses"]]

    def add_schema(self, topic: TopicName, info: SchemaInfo) -> int:
        """Add a schema, also where clients may not; its version. IncompatibleSchemaError, InvalidSchemaError."""
        try:
            answer = json.loads(self._call("POST", f"{_schema_path(topic)}/schema", json.dumps(to_rest(info))))
        except AdminRefusedError as error:
            if (refusal := _SCHEMA_REFUSALS.get(error.status)) is None:
                raise
            reason = " ".join(error.message.removeprefix(_REFUSED).split())  # that of Apache Pulsar has many lines
            what = "" if reason.startswith(("Incompatible", "Invalid")) else "Incompatible schema: "
            raise refusal(f"{what}{reason}", hint="pulsarish schema check tells it field by field") from error
        return int(answer["version"]["version"])

    def delete_schema(self, topic: TopicName, *, force: bool) -> int:
        """Delete it; the version that this took, -1 if none. ``force``: all versions, and numbers begin anew."""
        path = f"{_schema_path(topic)}/schema?force={str(force).lower()}"
        return int(json.loads(self._call("DELETE", path))["version"])

    def schema_strategy(self, topic: TopicName, info: SchemaInfo) -> str:
        """The strategy that is in force for a topic, of which ``info`` is the schema."""
        body = json.dumps(to_rest(info))
        answer = json.loads(self._call("POST", f"{_schema_path(topic)}/compatibility", body))
        return str(answer["schemaCompatibilityStrategy"])

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
        """Pass over the messages at the head of the backlog that are older than ``older_than_s`` seconds."""
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

    # -- transactions

    def open_transactions(self, timeout_over_ms: int = 0) -> dict[str, Any]:
        """Pulsar's metadata of each open transaction by its id, but of those whose timeout is not longer."""
        return dict(self._get(f"{_TRANSACTIONS}/slowTransactions/{timeout_over_ms}"))

    def transaction_buffer(self, topic: TopicName) -> dict[str, Any]:
        """Pulsar's stats of the transactions of a plain topic or one partition; on our brokers also its ``holder``, the
        open transaction for whose end its readers wait."""
        where = _path(topic.tenant, topic.namespace, topic.local)
        return dict(self._get(f"{_TRANSACTIONS}/transactionBufferStats/{where}"))

    def transaction(self, transaction: TxnId) -> dict[str, Any]:
        """Pulsar's metadata of one open transaction; TopicNotFoundError if there is none of that id."""
        return dict(self._get(f"{_TRANSACTIONS}/transactionMetadata/{transaction.most_bits}/{transaction.least_bits}"))

    def abort_transaction(self, transaction: TxnId) -> None:
        """Abort one; TopicNotFoundError if there never was one, or it was over long ago."""
        self._call("POST", f"{_TRANSACTIONS}/abortTransaction/{transaction.most_bits}/{transaction.least_bits}")

    # -- broker

    def health(self) -> str:
        """The health that the broker tells: "ok", or which of its data is damaged; then transactions that hold readers
        back. An error of the common tree if it is not well."""
        return _text_of(self._call("GET", "/admin/v2/brokers/health"))

    def metrics(self) -> str:
        """The figures of the broker as text for Prometheus; ours speaks OpenMetrics, Apache Pulsar the older format."""
        return self._call("GET", "/metrics/").decode("utf-8", "replace")

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
        credential = authentication.asked()
        answer, content = self._asked(method, path, body, credential)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            newer = authentication.asked(instead_of=credential)
            if newer != credential:
                answer, content = self._asked(method, path, body, newer)
        if answer.status >= 300:
            raise _refusal(answer.status, content, f"{method} {self._url}{path}", authentication, credential)
        return answer.headers, content

    def _asked(
        self, method: str, path: str, body: str | None, credential: Secret
    ) -> tuple[http.client.HTTPResponse, bytes]:
        headers: dict[str, str] = {"Content-Type": "application/json"} if body is not None else {}
        if not _is_nobody(self._authentication, credential):
            headers["X-Pulsar-Auth-Method-Name"] = self._authentication.method
            if said := self._authentication.http_header(credential):
                headers["Authorization"] = said
        return self._transport.ask(method, path, body, headers)


def _topic_path(topic: TopicName) -> str:
    return f"/admin/v2/{topic.domain}/{_path(topic.tenant, topic.namespace, topic.local)}"


def _schema_path(topic: TopicName) -> str:
    return f"/admin/v2/schemas/{_path(topic.tenant, topic.namespace, topic.base.local)}"


def _schema_entry(answer: Mapping[str, Any]) -> Entry:
    info = from_rest(answer["type"], answer.get("data", ""), answer.get("properties"))
    return Entry(int(answer["version"]), info, added_ms=int(answer.get("timestamp", 0)))


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


def _is_nobody(authentication: Authentication, credential: Secret) -> bool:
    """Whether a client has nothing to say who it is: it was given nothing, and there is no token on this machine."""
    return isinstance(authentication, OwnersToken) and not credential


def _refusal(
    status: int, content: bytes, request: str, authentication: Authentication, credential: Secret
) -> PulsarishError:
    try:
        reason = str(json.loads(content)["reason"])
    except (ValueError, KeyError, TypeError):
        reason = _text_of(content)[:200] or http.client.responses.get(status, "no reason given")
    # Pulsar also answers 401 to a role that it knows and that has no right: only then the reason in JSON says so.
    if status == HTTPStatus.FORBIDDEN or (status == HTTPStatus.UNAUTHORIZED and _NO_RIGHT.search(reason)):
        return AuthorizationError(f"the broker does not allow this: {reason}")
    if status == HTTPStatus.UNAUTHORIZED:
        return _unknown_client(reason, authentication, credential)
    if status == HTTPStatus.NOT_FOUND:
        return TopicNotFoundError(reason)
    refused = AdminRefusedError(f"{_REFUSED}{reason}", hint=f"it answered {status} to {request}")
    refused.status = status
    return refused


def _text_of(content: bytes) -> str:
    """The text of an answer that is no JSON: of a page its title."""
    text = content.decode("utf-8", "replace").strip()
    titled = re.search(r"<title>(.*?)</title>", text, re.DOTALL)
    return html.unescape(titled[1]).strip() if titled else text


def _unknown_client(reason: str, authentication: Authentication, credential: Secret) -> AuthenticationError:
    if _is_nobody(authentication, credential):
        return AuthenticationError(f"the broker does not know who you are: {reason}", hint=HINT_NOBODY)
    why = authentication.why_refused(credential) or reason
    return AuthenticationError(f"the broker does not accept {authentication}: {why}")
