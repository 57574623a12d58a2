# SPDX-License-Identifier: Apache-2.0
"""Words of the table of rights: ``Right``, the ``Resource`` that it is about, and ``Need``, which an operation has.

Every rule of ``server.conversation`` and every route of ``server.admin`` names its ``Need``; there is no default. The
border reads the resource from the command or the path before a handler sees the request, ``authorization`` decides, and
docs/rights.md and the test matrix are made from the same entries. Source: Pulsar docs, "Security - Authorization".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from broker_core.base.names import NamespaceName, TopicName


class Right(Enum):
    """Rights from the least to the greatest; each value is its text in docs/rights.md."""

    NONE = "nothing"
    IDENTITY = "any role"
    OPENED = "the right with which it was opened"
    OWNER = "owner of the transaction, or superuser"
    LOOKUP = "produce or consume"
    PRODUCE = "produce"
    CONSUME = "consume"
    USE_NAMESPACE = "produce or consume on the namespace"
    CONSUME_NAMESPACE = "consume on the namespace"
    ADMINISTER = "administrator of the tenant"
    SUPERUSER = "superuser"


class About(Enum):
    """The kind of resource that a right is about; each value is its text in docs/rights.md."""

    NOTHING = ""
    OPENED = "the open producer, consumer or watch"
    TRANSACTION = "the transaction"
    CLUSTER = "the cluster"
    TENANT = "the tenant"
    NAMESPACE = "the namespace"
    NAMESPACE_IN_BODY = "the namespace of the topics in the body"
    NAMESPACE_SUBSCRIPTION = "the subscription on all topics of the namespace"
    NAMESPACE_SUBSCRIPTIONS = "every subscription of the namespace"
    TOPIC = "the topic"
    SUBSCRIPTION = "the subscription of the topic"
    SUBSCRIPTIONS = "every subscription of the topic"


@dataclass(frozen=True, slots=True)
class Resource:
    """A tenant, namespace, topic or subscription that somebody wants to use; without any of them the cluster.

    ``every_subscription``: all subscriptions of the topic or namespace, whether they exist or not.
    """

    tenant: str = ""
    namespace: NamespaceName | None = None
    topic: TopicName | None = None
    subscription: str | None = None
    every_subscription: bool = False

    @classmethod
    def of_namespace(
        cls, name: NamespaceName, subscription: str | None = None, *, every_subscription: bool = False
    ) -> Resource:
        """A namespace, or subscriptions on all its topics."""
        return cls(name.tenant, name, None, subscription, every_subscription)

    @classmethod
    def of_topic(
        cls, name: TopicName, subscription: str | None = None, *, every_subscription: bool = False
    ) -> Resource:
        """A topic, or subscriptions of it."""
        return cls(name.tenant, name.namespace_name, name, subscription, every_subscription)

    def __str__(self) -> str:
        """The resource as the audit log names it."""
        whole = str(self.topic or self.namespace or self.tenant or "cluster")
        if self.every_subscription:
            return f"{whole} subscriptions"
        return whole if self.subscription is None else f"{whole} subscription {self.subscription}"


CLUSTER: Final = Resource()
"""The cluster; also the resource of commands that are about nothing but their connection."""


@dataclass(frozen=True, slots=True)
class Need:
    """The right that an operation needs, the kind of resource that it is about, and the refusal without the right.

    ``operation`` is Pulsar's name of the operation, "" where it has none. ``refusal`` is Pulsar's text; ``{tenant}``,
    ``{namespace}``, ``{topic}``, ``{role}`` and ``{original}`` stand for the names. ``status`` is the HTTP status, 0
    for a command of the binary protocol.
    """

    right: Right
    about: About
    refusal: str = ""
    status: int = 0
    operation: str = ""

    def refusal_of(self, resource: Resource, role: str, original: str) -> str:
        """The text for one client and one resource."""
        names = {"tenant": resource.tenant, "namespace": resource.namespace, "topic": resource.topic}
        return self.refusal.format(**names, role=role, original=original or "null")
