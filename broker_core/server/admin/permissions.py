# SPDX-License-Identifier: Apache-2.0
"""Grants: which role may produce to and consume from the topics of a namespace, single topics and subscriptions.

They are kept with the policies of the namespace, whether or not rights are checked (``authorizationEnabled``), so that
they can be made before. A grant replaces the actions that the role had at the same place. A change ends the producers
and consumers that stood on what is taken away. Source: Pulsar docs, "Admin API - permissions".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from broker_core.base.errors import NotAllowedError
from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import NO_GRANTS, Action, AuthPolicies, SubscriptionAuthMode, check_role
from broker_core.server.admin.answers import BadRequestError, MissingError, RefusedError, json_answer
from broker_core.server.admin.requests import AdminRequest, Handler, Route, TopicInBody, namespace_of
from broker_core.server.security import needs
from broker_core.server.security.rights import About, Need

_OfTopics = Mapping[str, Mapping[str, tuple[Action, ...]]]

# -- grants of a namespace and of single topics


async def get_namespace_grants(request: AdminRequest) -> object:
    """The actions that each role was granted on the namespace."""
    return _grants(request).namespace_auth


async def grant_on_namespace(request: AdminRequest) -> None:
    """Grant the actions in the body to the role; they replace those that it had on the namespace."""
    role, actions = _role(request), await _actions(request)
    grants = _grants(request)
    await _keep(request, request.namespace_name, grants, namespace_auth={**grants.namespace_auth, role: actions})


async def revoke_on_namespace(request: AdminRequest) -> None:
    """Take back all that the role was granted on the namespace. Its grants on single topics stay."""
    grants, role = _grants(request), request.part("role")
    await _keep(request, request.namespace_name, grants, namespace_auth=_without(grants.namespace_auth, role))


async def get_topic_grants(request: AdminRequest) -> object:
    """The actions that each role has on the topic: those of the namespace, of the topic, and of a partition also those
    of the topic that it is part of."""
    grants, topic = _grants(request), request.topic_name
    found: dict[str, set[str]] = {}
    for each in (grants.namespace_auth, *(grants.destination_auth.get(str(name), {}) for name in (topic.base, topic))):
        for role, actions in each.items():
            found.setdefault(role, set()).update(actions)
    return {role: [action for action in get_args(Action) if action in actions] for role, actions in found.items()}


async def grant_on_topic(request: AdminRequest) -> None:
    """Grant the actions in the body to the role; they replace those that it had on the topic. A grant on a partitioned
    topic holds for its partitions."""
    role, actions = _role(request), await _actions(request)
    grants, topic = _grants(request), str(request.topic_name)
    of_topic = {**grants.destination_auth.get(topic, {}), role: actions}
    await _keep(request, request.namespace_name, grants, destination_auth={**grants.destination_auth, topic: of_topic})


async def revoke_on_topic(request: AdminRequest) -> None:
    """Take back all that the role was granted on the topic, and on its partitions. What the namespace grants stays."""
    grants, role = _grants(request), request.part("role")
    left = _without_role(grants.destination_auth, request.topic_name, role)
    await _keep(request, request.namespace_name, grants, destination_auth=left)


def _without_role(of_topics: _OfTopics, topic: TopicName, role: str) -> _OfTopics:
    """Grants of topics but for those of the role on one topic and its partitions."""
    left = {name: _without(roles, role) if _is_of(name, topic) else roles for name, roles in of_topics.items()}
    return {name: roles for name, roles in left.items() if roles}


def _is_of(name: str, topic: TopicName) -> bool:
    """Whether ``name`` is the topic, or a partition of it."""
    return name == str(topic) or (name.startswith(str(topic)) and TopicName.parse(name).base == topic)


class _Grant(TopicInBody, frozen=True, forbid_unknown_fields=True):
    """A grant on one of several topics."""

    role: str
    actions: tuple[Action, ...]


class _Revocation(TopicInBody, frozen=True, forbid_unknown_fields=True):
    """A grant on one of several topics that is taken back."""

    role: str


async def grant_on_topics(request: AdminRequest) -> None:
    """Grant each `{"topic", "role", "actions"}` of the list in the body; the topics are of one namespace."""
    wanted: list[_Grant] = await request.body_as(list[_Grant], [])
    _checked(request, [each.role for each in wanted])
    name = _existing_namespace_of(request, wanted)
    grants = request.broker.policies.of_namespace(name).auth_policies or NO_GRANTS
    of_topics = dict(grants.destination_auth)
    for each in wanted:
        topic = str(TopicName.parse(each.topic))
        of_topics[topic] = {**of_topics.get(topic, {}), each.role: tuple(dict.fromkeys(each.actions))}
    await _keep(request, name, grants, destination_auth=of_topics)


async def revoke_on_topics(request: AdminRequest) -> None:
    """Take each `{"topic", "role"}` of the list in the body back; the topics are of one namespace."""
    wanted: list[_Revocation] = await request.body_as(list[_Revocation], [])
    name = _existing_namespace_of(request, wanted)
    grants = request.broker.policies.of_namespace(name).auth_policies or NO_GRANTS
    left: _OfTopics = grants.destination_auth
    for each in wanted:
        left = _without_role(left, TopicName.parse(each.topic), each.role)
    await _keep(request, name, grants, destination_auth=left)


def _existing_namespace_of(request: AdminRequest, topics: Sequence[TopicInBody]) -> NamespaceName:
    name = namespace_of(topics)
    request.broker.namespaces.require(name)
    return name


# -- subscriptions


async def get_subscription_grants(request: AdminRequest) -> object:
    """The roles of each subscription that is not open to all that may consume."""
    return _grants(request).subscription_auth_roles


async def grant_on_subscription(request: AdminRequest) -> None:
    """Let only the roles in the body use the subscription, on all topics of the namespace. They still need consume."""
    roles = _checked(request, await request.body_as(list[str], []))
    grants, name = _grants(request), request.subscription_of_namespace
    others = _without(grants.subscription_auth_roles, name)
    await _keep(
        request, request.namespace_name, grants, subscription_auth_roles={**others, name: roles} if roles else others
    )


async def revoke_on_subscription(request: AdminRequest) -> None:
    """Take the role from those that may use the subscription; with the last one it is open again. 404 if it is open."""
    grants, name, role = _grants(request), request.subscription_of_namespace, request.part("role")
    if name not in grants.subscription_auth_roles:
        raise MissingError(f"subscription {name[:80]!r} has no roles of its own")
    roles = tuple(each for each in grants.subscription_auth_roles[name] if each != role)
    others = _without(grants.subscription_auth_roles, name)
    await _keep(
        request, request.namespace_name, grants, subscription_auth_roles={**others, name: roles} if roles else others
    )


async def get_mode(request: AdminRequest) -> object:
    """Prefix if the names of subscriptions must begin with the role that uses them, else None."""
    policies = request.broker.policies.of_namespace(request.existing_namespace())
    return json_answer(policies.subscription_auth_mode or "None")


async def set_mode(request: AdminRequest) -> None:
    """Set it: `"Prefix"` or `"None"`."""
    mode: SubscriptionAuthMode | None = await request.body_as(SubscriptionAuthMode)
    await _change(request, request.existing_namespace(), subscription_auth_mode=None if mode == "None" else mode)


async def remove_mode(request: AdminRequest) -> None:
    """Let subscriptions have any names again."""
    await _change(request, request.existing_namespace(), subscription_auth_mode=None)


# -- parts


def _grants(request: AdminRequest) -> AuthPolicies:
    """All grants of the namespace in the path, which must exist."""
    return request.broker.policies.of_namespace(request.existing_namespace()).auth_policies or NO_GRANTS


def _role(request: AdminRequest) -> str:
    return _checked(request, [request.part("role")])[0]


def _checked(request: AdminRequest, roles: Iterable[str]) -> tuple[str, ...]:
    """``roles`` if each of them can be granted something, without repetitions."""
    found = tuple(dict.fromkeys(roles))
    try:
        for role in found:
            check_role(role)
    except NotAllowedError as error:
        raise RefusedError(412, str(error)) from error
    check_wildcards(request, found)
    return found


def check_wildcards(request: AdminRequest, roles: Iterable[str]) -> None:
    """A refusal of a name with ``*`` where it would be that of one role: whoever grants it means many."""
    if request.node.settings.authorization_allow_wildcards_matching:
        return
    for role in roles:
        if "*" in role:
            raise RefusedError(
                412,
                f"role {role[:80]!r} has a * and would match nobody; "
                "set authorizationAllowWildcardsMatching=true, or name the roles",
            )


async def _actions(request: AdminRequest) -> tuple[Action, ...]:
    actions: Any = await request.body_as(tuple[Action, ...] | None)
    if actions is None:
        raise BadRequestError("the request names no actions; send a list, such as produce and consume")
    found: tuple[Action, ...] = tuple(dict.fromkeys(actions))
    return found


def _without(several: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {each: value for each, value in several.items() if each != name}


async def _keep(request: AdminRequest, name: NamespaceName, grants: AuthPolicies, **fields: object) -> None:
    """Keep ``grants`` with these fields changed. No request may wait between reading them and this."""
    changed = msgspec.structs.replace(grants, **fields)
    await _change(request, name, auth_policies=None if changed == NO_GRANTS else changed)


async def _change(request: AdminRequest, name: NamespaceName, **fields: object) -> None:
    policies = msgspec.structs.replace(request.broker.policies.of_namespace(name), **fields)
    applying = request.broker.set_namespace_policies(name, policies)
    request.node.rights_changed(name.tenant)
    await request.in_turns(applying)


_NAMESPACES: Final = "/admin/v2/namespaces"
_N: Final = f"{_NAMESPACES}/{{tenant}}/{{namespace}}"
_DOMAINS: Final = ("persistent", "non-persistent")
_MODE: Final = "subscriptionAuthMode"

_GET: Final = needs.of_namespace("GET_PERMISSION")
_GRANT: Final = needs.of_namespace("GRANT_PERMISSION")
_REVOKE: Final = needs.of_namespace("REVOKE_PERMISSION")
_OF_TOPIC: Final = needs.administer(About.TOPIC)
_OF_TOPICS: Final = needs.administer(About.NAMESPACE_IN_BODY)


def _route(path: str, handler: Handler, need: Need, method: str = "GET") -> Route:
    """A route that no topic is loaded for; grants that cannot be kept are answered with 412."""
    return Route(path, handler, need, methods=[method], statuses={NotAllowedError: 412}, loads=False)


ROUTES: Final = [
    _route(f"{_N}/permissions", get_namespace_grants, _GET),
    _route(f"{_N}/permissions/{{role}}", grant_on_namespace, _GRANT, "POST"),
    _route(f"{_N}/permissions/{{role}}", revoke_on_namespace, _REVOKE, "DELETE"),
    *(
        route
        for topic in (f"/admin/v2/{domain}/{{tenant}}/{{namespace}}/{{topic}}" for domain in _DOMAINS)
        for route in (
            _route(f"{topic}/permissions", get_topic_grants, _OF_TOPIC),
            _route(f"{topic}/permissions/{{role}}", grant_on_topic, _OF_TOPIC, "POST"),
            _route(f"{topic}/permissions/{{role}}", revoke_on_topic, _OF_TOPIC, "DELETE"),
        )
    ),
    _route(f"{_NAMESPACES}/grantPermissionsOnTopics", grant_on_topics, _OF_TOPICS, "POST"),
    _route(f"{_NAMESPACES}/revokePermissionsOnTopics", revoke_on_topics, _OF_TOPICS, "POST"),
    _route(f"{_N}/permissions/subscription", get_subscription_grants, _GET),
    _route(f"{_N}/permissions/subscription/{{subscription}}", grant_on_subscription, _GRANT, "POST"),
    _route(f"{_N}/permissions/subscription/{{subscription}}/{{role}}", revoke_on_subscription, _REVOKE, "DELETE"),
    _route(f"{_N}/permissions/{{subscription}}/{{role}}", revoke_on_subscription, _REVOKE, "DELETE"),
    _route(f"{_N}/{_MODE}", get_mode, needs.of_policy(_MODE, "GET", of_topic=False)),
    _route(f"{_N}/{_MODE}", set_mode, needs.of_policy(_MODE, "POST", of_topic=False), "POST"),
    _route(f"{_N}/{_MODE}", remove_mode, needs.of_policy(_MODE, "DELETE", of_topic=False), "DELETE"),
]
