# SPDX-License-Identifier: Apache-2.0
"""A regular expression over the topics of one namespace. Pure.

The namespace is literal, the rest of the name is the expression, which must match the whole name of a topic without
its partition. Source: Pulsar docs, "Messaging - Multi-topic subscriptions"; PIP-145; semantics 1.2, 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from broker_core.base.errors import UsageError
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
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"topics pattern {text!r} is not one of names in a namespace",
                hint="write expression, or tenant/namespace/expression",
            )
        tenant, namespace, local = parts.groups()
        try:
            expression = re.compile(local, re.DOTALL)
        except re.error as error:
            raise UsageError(f"topics pattern {text!r}: {error}", hint="write a regular expression") from error
        where = NamespaceName.parse(f"{tenant or DEFAULT_TENANT}/{namespace or DEFAULT_NAMESPACE}")
        return cls(text, where, expression)

    def select(self, topics: Iterable[str]) -> set[TopicName]:
        """Those of ``topics`` (full names, partitions singly) that match; topics of the system never do."""
        names = map(TopicName.parse, topics)
        return {name for name in names if not name.is_system and self.local.fullmatch(name.base.local)}
