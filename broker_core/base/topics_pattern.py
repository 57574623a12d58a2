# SPDX-License-Identifier: Apache-2.0
"""A regular expression over the topics of one namespace. Pure.

The namespace is literal, the rest of the name is the expression, which must match the whole name of a topic without
its partition. ``spanning`` reads an expression over several namespaces, all of which it has to name, for the protocol
lists the topics of a namespace, but no namespaces.
Source: Pulsar docs, "Messaging - Multi-topic subscriptions"; PIP-145; semantics 1.2, 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from broker_core.base.errors import UsageError
from broker_core.base.literal_choices import literal_choices
from broker_core.base.names import DEFAULT_NAMESPACE, DEFAULT_TENANT, NamespaceName, TopicName

_PARTS = re.compile(r"(?:(?:persistent|non-persistent)://)?(?:([^/]+)/([^/]+)/)?([^/]+)")


@dataclass(frozen=True, slots=True)
class TopicsPattern:
    """``text`` as the user wrote it."""

    text: str
    namespace: NamespaceName
    local: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> TopicsPattern:
        """Read ``[domain://tenant/namespace/]expression``; UsageError says what is wrong."""
        tenant, namespace, local = _parts(text)
        return cls(text, NamespaceName.parse(f"{tenant}/{namespace}"), local)

    @classmethod
    def spanning(cls, text: str) -> tuple[TopicsPattern, ...]:
        """As ``parse``, where tenant and namespace may have alternatives (``public/(a|b)/.*``): one pattern for each
        namespace."""
        tenant, namespace, local = _parts(text)
        try:
            names = [NamespaceName.parse(each) for each in literal_choices(f"{tenant}/{namespace}")]
        except ValueError as error:
            raise UsageError(
                f"topics pattern {text!r} does not name its namespaces: {error}",
                hint="name them, as in public/(a|b)/.*; brokers list the topics of a namespace, and no namespaces",
            ) from error
        return tuple(cls(text, name, local) for name in names)

    def select(self, topics: Iterable[str]) -> set[TopicName]:
        """The ones of ``topics`` (full names, partitions singly) that match. Topics that brokers keep for themselves
        never match."""
        names = map(TopicName.parse, topics)
        return {name for name in names if not name.is_internal and self.local.fullmatch(name.base.local)}

    def matches(self, topic: TopicName) -> bool:
        """Whether a topic, which may not exist, is one of the namespace and would be selected."""
        return topic.namespace_name == self.namespace and bool(self.select([str(topic)]))


def _parts(text: str) -> tuple[str, str, re.Pattern[str]]:
    """Tenant, namespace and expression."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        raise UsageError(
            f"topics pattern {text!r} is not one of names in a namespace",
            hint="write expression, or tenant/namespace/expression",
        )
    tenant, namespace, local = parts.groups()
    try:
        return tenant or DEFAULT_TENANT, namespace or DEFAULT_NAMESPACE, re.compile(local, re.DOTALL)
    except re.error as error:
        raise UsageError(
            f"topics pattern {text!r} is not a regular expression: {error}", hint="mend the expression"
        ) from error
