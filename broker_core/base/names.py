# SPDX-License-Identifier: Apache-2.0
"""Names of tenants, namespaces, topics and subscriptions: parsing, validation, partitions.

``TopicName.parse`` is the only way to make one, so every TopicName is valid. File names are never derived from
these names (storage uses numbers), so nothing here needs to be safe as a path.
Source: Pulsar docs, "Topics"; semantics 1.1 and 1.2.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_core.base.errors import InvalidTopicNameError, NotAllowedError
from broker_core.base.limits import (
    NAMESPACE_NAME_BYTES_MAX,
    PROPERTIES_BYTES_MAX,
    SUBSCRIPTION_NAME_BYTES_MAX,
    TOPIC_NAME_BYTES_MAX,
)

DEFAULT_TENANT: Final = "public"
DEFAULT_NAMESPACE: Final = "default"
PARTITION_MARK: Final = "-partition-"

SPARK_SINK_PREFIX: Final = "__spark_sink_"
"""The beginning of the names of topics in which Spark's sink writes what it has decided: under the role of its user."""

_PENDING_ACKS: Final = "__transaction_pending_ack"
_COORDINATORS: Final = "transaction_coordinator_assign"
_TRANSACTION_LOGS: Final = "__transaction_log_"
_SYSTEM_NAMESPACE: Final = ("pulsar", "system")
_HEALTH_CHECK: Final = ("pulsar", "healthcheck")
"""Tenant and topic; each broker has a namespace for it."""
_RESERVED_SUBSCRIPTIONS: Final = ("pulsar.", "__compaction")
_DOMAINS: Final = ("persistent", "non-persistent")
_PART = re.compile(r"[-=:.\w]+", re.ASCII)
_PARTITION = re.compile(r"(.+)-partition-(0|[1-9][0-9]*)", re.DOTALL)
_PARTITION_NUMBER_MAX: Final = 2**31 - 1
"""Clients and brokers have 32 bits for it. What ends with a larger number, a date for instance, is a plain topic."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


_SHOWN_MAX: Final = 80
"""Characters of a name or key that an error repeats."""


def shown_name(name: str | bytes) -> str:
    """``name``, or a key, in quotes as an error repeats it, of whatever length and characters it is."""
    if len(name) <= _SHOWN_MAX:
        return repr(name)
    begin = name[: _SHOWN_MAX - 3]
    return repr(begin + b"..." if isinstance(begin, bytes) else f"{begin}...")


def _refuse(name: str, why: str) -> InvalidTopicNameError:
    return InvalidTopicNameError(
        f"topic name {shown_name(name)} is not valid: {why}",
        hint="write topic, tenant/namespace/topic or persistent://tenant/namespace/topic",
    )


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """``tenant/namespace``."""

    tenant: str
    local: str

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        parts = text.split("/")
        if len(parts) != 2 or not all(_PART.fullmatch(p) for p in parts):
            raise InvalidTopicNameError(f"namespace {shown_name(text)} is not valid", hint="write tenant/namespace")
        if len(text) > NAMESPACE_NAME_BYTES_MAX:
            raise InvalidTopicNameError(
                f"namespace {shown_name(text)} is not valid: it is longer than {NAMESPACE_NAME_BYTES_MAX} bytes",
                hint="shorten the name of the tenant or of the namespace",
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.local}"


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """A full topic name. ``str()`` gives the canonical form ``domain://tenant/namespace/local``."""

    domain: str
    tenant: str
    namespace: str
    local: str
    _text: str = field(default="", repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Accept a short or full name; InvalidTopicNameError says what is wrong with any other."""
        size = _size_bytes(text)
        if size < 0:
            raise _refuse(text, "it is not text in UTF-8")
        if size > TOPIC_NAME_BYTES_MAX:
            raise _refuse(text, f"it is longer than {TOPIC_NAME_BYTES_MAX} bytes")
        if _CONTROL.search(text):
            raise _refuse(text, "it contains a control character")
        domain, found, rest = text.partition("://")
        if not found:
            domain, rest = "persistent", _complete_short_name(text)
        if domain not in _DOMAINS:
            raise _refuse(text, f"the domain must be {' or '.join(_DOMAINS)}")
        parts = rest.split("/")
        if len(parts) != 3:
            raise _refuse(text, "it needs exactly tenant, namespace and topic after the domain")
        tenant, namespace, local = parts
        if not _PART.fullmatch(tenant) or not _PART.fullmatch(namespace):
            raise _refuse(text, "tenant and namespace take letters, digits and - = : . _")
        if not local.strip():
            raise _refuse(text, "the topic part is empty")
        return cls(domain, tenant, namespace, local, f"{domain}://{tenant}/{namespace}/{local}")

    def __str__(self) -> str:
        return self._text

    @property
    def short(self) -> str:
        """The shortest name by which users can call the topic."""
        for short in (self.local, f"{self.tenant}/{self.namespace}/{self.local}"):
            with contextlib.suppress(InvalidTopicNameError):
                if TopicName.parse(short) == self:
                    return short
        return self._text

    @property
    def persistent(self) -> bool:
        return self.domain == "persistent"

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)

    @property
    def partition_index(self) -> int:
        """N of ``...-partition-N``, or -1."""
        return self._parted[1]

    @property
    def base(self) -> TopicName:
        """The partitioned topic that this is a partition of, or the topic itself."""
        local, index = self._parted
        return self._with_local(local) if index >= 0 else self

    @property
    def _parted(self) -> tuple[str, int]:
        """The local name without ``-partition-N``, and N; -1 without one."""
        found = _PARTITION.fullmatch(self.local)
        if found is None or len(found[2]) > len(str(_PARTITION_NUMBER_MAX)) or int(found[2]) > _PARTITION_NUMBER_MAX:
            return self.local, -1
        return found[1], int(found[2])

    @property
    def in_other_domain(self) -> TopicName:
        """The topic of the same name that is stored if this one is not, and the other way round."""
        domain = "non-persistent" if self.persistent else "persistent"
        return TopicName.parse(f"{domain}://{self.namespace_name}/{self.local}")

    @property
    def is_system(self) -> bool:
        """Reserved names that users do not see (semantics 1.1.6)."""
        return self.local.startswith("__")

    @property
    def is_of_brokers(self) -> bool:
        """Whether it is a system topic into which brokers alone write."""
        return self.is_system and not self.local.startswith(SPARK_SINK_PREFIX)

    @property
    def is_internal(self) -> bool:
        """Whether it may be a topic that a broker, ours or an Apache Pulsar, keeps for itself: no pattern means it."""
        return (
            self.is_system
            or (self.tenant, self.namespace) == _SYSTEM_NAMESPACE
            or (self.tenant, self.base.local) == _HEALTH_CHECK
            or self.base.local.endswith(_PENDING_ACKS)
        )

    @property
    def is_coordinator(self) -> bool:
        """Whether clients find the coordinators of transactions under this name: there is no such topic, but its number
        of partitions is theirs."""
        return (
            self.persistent and (self.tenant, self.namespace) == _SYSTEM_NAMESPACE and self.base.local == _COORDINATORS
        )

    @property
    def is_of_transactions(self) -> bool:
        """Whether it may only be a topic that a broker keeps for transactions, so that nobody else may make it."""
        local = self.base.local
        of_coordinators = self.is_coordinator or local.startswith(_TRANSACTION_LOGS)
        return local.endswith(_PENDING_ACKS) or ((self.tenant, self.namespace) == _SYSTEM_NAMESPACE and of_coordinators)

    def partition(self, index: int) -> TopicName:
        """The topic of partition ``index``."""
        return self._with_local(f"{self.local}{PARTITION_MARK}{index}")

    def _with_local(self, local: str) -> TopicName:
        return TopicName(
            self.domain, self.tenant, self.namespace, local, f"{self.domain}://{self.tenant}/{self.namespace}/{local}"
        )


def _complete_short_name(text: str) -> str:
    slashes = text.count("/")
    if slashes == 0:
        return f"{DEFAULT_TENANT}/{DEFAULT_NAMESPACE}/{text}"
    if slashes == 2:
        return text
    raise _refuse(text, "a name without a domain has no slash, or the two of tenant/namespace/topic")


def check_tenant_name(name: str) -> str:
    """Return ``name`` if it may name a tenant, else raise InvalidTopicNameError."""
    try:
        NamespaceName.parse(f"{name}/{DEFAULT_NAMESPACE}")
    except InvalidTopicNameError as error:
        raise InvalidTopicNameError(
            f"tenant name {shown_name(name)} is not valid",
            hint=f"use letters, digits and - = : . _, and with a namespace {NAMESPACE_NAME_BYTES_MAX} at most",
        ) from error
    return name


def check_not_reserved(subscription: str) -> None:
    """NotAllowedError if the name is one of those that the broker gives to its own cursors (semantics 1.1.6)."""
    if subscription.startswith(_RESERVED_SUBSCRIPTIONS):
        raise NotAllowedError(
            f"subscription name {subscription!r} is reserved for the broker itself",
            hint=f"choose one that does not begin with {' or '.join(_RESERVED_SUBSCRIPTIONS)}",
        )


def check_subscription_name(name: str) -> str:
    """Return ``name`` if it may name a subscription, else raise InvalidTopicNameError."""
    if not 0 < _size_bytes(name) <= SUBSCRIPTION_NAME_BYTES_MAX or _CONTROL.search(name):
        raise InvalidTopicNameError(
            f"subscription name {name[:80]!r} is not valid",
            hint=f"use 1 to {SUBSCRIPTION_NAME_BYTES_MAX} bytes of UTF-8 without control characters",
        )
    return name


def check_properties(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the ``properties`` of a subscription or topic if they are few enough to be kept, else NotAllowedError."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in properties.items())
    if size > PROPERTIES_BYTES_MAX:
        raise NotAllowedError(
            f"properties of {size} bytes, more than the {PROPERTIES_BYTES_MAX} that are kept", hint="shorten them"
        )
    return properties


def _size_bytes(name: str) -> int:
    """In UTF-8; -1 if it cannot be expressed, as what a command line was given in another encoding."""
    try:
        return len(name.encode())
    except UnicodeEncodeError:
        return -1
