# SPDX-License-Identifier: Apache-2.0
"""The rules of rights stated a second time, in facts about one role, for tests of decisions and for the matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from broker_core.base.names import NamespaceName
from broker_core.base.policies import NO_GRANTS, NO_POLICIES, AuthPolicies, Policies
from broker_core.server.security.rights import Resource, Right

SUPERUSER = "root"


@dataclass
class Book:
    """Grants of the namespaces of a tenant, which are all the same, and the administrators of tenants."""

    grants: AuthPolicies = NO_GRANTS
    prefixed: bool = False
    wildcards: bool = True
    tenant: str = "acme"
    roles: Mapping[str, list[str]] = field(default_factory=lambda: {"acme": ["boss"], "other": ["stranger"]})

    def admins(self, tenant: str) -> Collection[str]:
        return self.roles.get(tenant, ())

    def policies(self, namespace: NamespaceName) -> Policies:
        if namespace.tenant != self.tenant:
            return NO_POLICIES
        return Policies(auth_policies=self.grants, subscription_auth_mode="Prefix" if self.prefixed else None)


def may(book: Book, role: str, right: Right, resource: Resource) -> bool:
    """Whether ``role`` has ``right`` on ``resource``."""
    if role == SUPERUSER or right in (Right.NONE, Right.OPENED, Right.OWNER, Right.IDENTITY):
        return True
    if role in book.admins(resource.tenant) and right is not Right.SUPERUSER:
        return True
    grants, topic, name = book.grants, resource.topic, resource.subscription
    of_namespace = _granted(book, role, grants.namespace_auth)
    of_topic = _granted(book, role, grants.destination_auth.get(str(topic), {}))
    of_base = set(grants.destination_auth.get(str(topic.base), {}).get(role, ())) if topic else set()
    have = of_namespace | of_topic | of_base if topic else of_namespace
    own = grants.subscription_auth_roles
    may_use = all(role in own.get(each, (role,)) for each in (own if resource.every_subscription else [name or ""]))
    if book.prefixed:
        may_use = may_use and not resource.every_subscription and (name is None or name.startswith(role))
    facts = {
        Right.LOOKUP: bool(have & {"produce", "consume"}),
        Right.PRODUCE: "produce" in have and (name is None or ("consume" in have and may_use)),
        Right.CONSUME: "consume" in have and may_use,
        Right.CONSUME_NAMESPACE: "consume" in of_namespace and may_use,
        Right.USE_NAMESPACE: bool(of_namespace & {"produce", "consume"}),
    }
    return resource.namespace is not None and resource.tenant == book.tenant and facts.get(right, False)


def _granted(book: Book, role: str, granted: Mapping[str, Collection[str]]) -> set[str]:
    """The actions of every name that means the role."""
    likes = {
        name
        for name in granted
        if name == role
        or (book.wildcards and name[-1] == "*" and role.startswith(name[:-1]))
        or (book.wildcards and name[0] == "*" and role.endswith(name[1:]))
    }
    return {action for name in likes for action in granted[name]}
