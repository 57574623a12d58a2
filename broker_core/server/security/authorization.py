# SPDX-License-Identifier: Apache-2.0
"""``Authorization``: which role may use which resource. A pure function of roles, grants and settings.

Rules, in this order. The owner of the data directory and a superuser may do everything; an administrator of the tenant
everything in it that is not left to superusers. Others need a grant of the action: to their role on the namespace, to
it on the topic, to a wildcard that matches it on either, or, for a partition, to it on the topic that this is a
partition of. Grants only add. A subscription may have roles of its own, or need the role as its prefix; then the grant
alone is not enough. A proxy and the role that it speaks for must both be allowed. A topic of the broker's own
(``__...``) takes messages of superusers only. Nothing here asks whether the resource exists.
Source: Pulsar docs, "Security - Authorization".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from broker_core.base.names import NamespaceName
from broker_core.base.policies import NO_GRANTS, AuthPolicies, Policies
from broker_core.base.settings import Settings
from broker_core.server.security.identity import Identity
from broker_core.server.security.rights import Need, Resource, Right

_USE: Final = ("produce", "consume")

UNCHECKED: Final = frozenset({Right.NONE, Right.OPENED, Right.OWNER})
"""Rights that are not decided here: they are free, were checked when the producer or consumer was opened, or are the
transaction's, which knows its owner."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The role of a client, and the role for which it speaks if it is a proxy. ``is_owner``: the client has shown that
    it can read the data directory, so no right can be kept from it."""

    role: str
    original: str = ""
    is_owner: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that must all be allowed."""
        return (self.role, self.original) if self.original else (self.role,)


class Grants(Protocol):
    """The administrators of tenants, and the grants of namespaces."""

    def admins(self, tenant: str) -> Collection[str]:
        """Roles that administer a tenant; none of a tenant that does not exist."""
        ...

    def policies(self, namespace: NamespaceName) -> Policies:
        """Policies of a namespace, of which ``auth_policies`` and ``subscription_auth_mode`` matter."""
        ...


class Authorization:
    """Decisions by the grants of the moment."""

    def __init__(self, settings: Settings, grants: Grants) -> None:
        self._superusers = frozenset(settings.super_user_roles)
        self._proxies = frozenset(settings.proxy_roles)
        self._wildcards = settings.authorization_allow_wildcards_matching
        self._grants = grants

    def caller(self, identity: Identity, original: str) -> Caller | None:
        """The client that proved ``identity`` and names ``original`` as the role it speaks for; None if these do not
        fit: a proxy must speak for somebody who is none, and nobody else may speak for another."""
        role = identity.role
        if role in self._proxies and not identity.is_owner:
            return Caller(role, original) if original and original not in self._proxies else None
        return Caller(role, is_owner=identity.is_owner) if original in ("", role) and role else None

    def allows(self, caller: Caller | None, right: Right, resource: Resource) -> bool:
        """Whether ``caller`` (None: nobody who is known) has ``right`` on ``resource``."""
        if right in UNCHECKED:
            return True
        if caller is None:
            return False
        return caller.is_owner or all(self._allows(role, right, resource) for role in caller.roles)

    def refusal(self, caller: Caller | None, need: Need, resource: Resource) -> str:
        """Why ``caller`` may not, in Pulsar's words; "" if it may."""
        if self.allows(caller, need.right, resource):
            return ""
        if caller is None:
            return "Need to authenticate to perform the request"
        if need.right is Right.CONSUME and not need.status and (role := self._without_prefix(caller, resource)):
            return (
                "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, "
                f"like {role}-xxxx for topic: {resource.topic}"
            )
        return need.refusal_of(resource, caller.role, caller.original)

    def _without_prefix(self, caller: Caller, resource: Resource) -> str:
        """The role that may consume from the topic, but not by the name of the subscription; "" if there is none."""
        for role in caller.roles:
            if not self._allows(role, Right.CONSUME, resource):
                topic = Resource(resource.tenant, resource.namespace, resource.topic)
                prefixed = self._needs_prefix(resource) and not (resource.subscription or "").startswith(role)
                return role if prefixed and self._allows(role, Right.CONSUME, topic) else ""
        return ""

    def _allows(self, role: str, right: Right, resource: Resource) -> bool:
        if role in self._superusers:
            return True
        if right is Right.IDENTITY:
            return True
        topic = resource.topic
        if right is Right.SUPERUSER or (right is Right.PRODUCE and topic is not None and topic.is_of_brokers):
            return False
        if role in self._grants.admins(resource.tenant):
            return True
        return right is not Right.ADMINISTER and self._granted(role, right, resource)

    def _granted(self, role: str, right: Right, resource: Resource) -> bool:
        if resource.namespace is None:
            return False
        policies = self._grants.policies(resource.namespace)
        grants = policies.auth_policies or NO_GRANTS
        match right:
            case Right.LOOKUP:
                return any(self._may(role, action, resource, grants) for action in _USE)
            case Right.PRODUCE:
                return self._may(role, "produce", resource, grants) and (
                    resource.subscription is None or self._may_consume(role, resource, policies, grants)
                )
            case Right.CONSUME | Right.CONSUME_NAMESPACE:
                return self._may_consume(role, resource, policies, grants)
            case Right.USE_NAMESPACE:
                return any(self._on_namespace(role, action, grants) for action in _USE)
        return False

    def _may_consume(self, role: str, resource: Resource, policies: Policies, grants: AuthPolicies) -> bool:
        return self._may(role, "consume", resource, grants) and _may_use_subscription(role, resource, policies, grants)

    def _may(self, role: str, action: str, resource: Resource, grants: AuthPolicies) -> bool:
        """Whether the action was granted on the namespace, or on the topic if the resource is in one."""
        if self._on_namespace(role, action, grants):
            return True
        topic = resource.topic
        if topic is None or not grants.destination_auth:
            return False
        return self._on_topic(role, action, str(topic), grants) or (
            topic.partition_index >= 0 and action in grants.destination_auth.get(str(topic.base), {}).get(role, ())
        )

    def _on_namespace(self, role: str, action: str, grants: AuthPolicies) -> bool:
        """Whether the action was granted on the namespace, to the role or to a wildcard that matches it."""
        if action in grants.namespace_auth.get(role, ()):
            return True
        return self._wildcards and _has_match(role, action, grants.wildcards.namespace_auth)

    def _on_topic(self, role: str, action: str, topic: str, grants: AuthPolicies) -> bool:
        """The same on one topic."""
        if action in grants.destination_auth.get(topic, {}).get(role, ()):
            return True
        return self._wildcards and _has_match(role, action, grants.wildcards.destination_auth.get(topic, {}))

    def _needs_prefix(self, resource: Resource) -> bool:
        return resource.namespace is not None and _is_prefixed(self._grants.policies(resource.namespace))


def _has_match(role: str, action: str, granted: Mapping[str, Collection[str]]) -> bool:
    return any(action in actions and _matches(name, role) for name, actions in granted.items())


def _matches(name: str, role: str) -> bool:
    """Whether a granted name is a wildcard for ``role``: ``*``, ``begin*`` or ``*end``."""
    return (name.endswith("*") and role.startswith(name[:-1])) or (name.startswith("*") and role.endswith(name[1:]))


def _may_use_subscription(role: str, resource: Resource, policies: Policies, grants: AuthPolicies) -> bool:
    """Whether the rules of subscriptions let the role use the one that is named; of all of them each must."""
    if resource.every_subscription:
        return not _is_prefixed(policies) and all(role in roles for roles in grants.subscription_auth_roles.values())
    if (name := resource.subscription) is None:
        return True
    roles = grants.subscription_auth_roles.get(name, ())
    return (not roles or role in roles) and (not _is_prefixed(policies) or name.startswith(role))


def _is_prefixed(policies: Policies) -> bool:
    return policies.subscription_auth_mode == "Prefix"
