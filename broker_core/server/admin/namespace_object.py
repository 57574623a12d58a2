# SPDX-License-Identifier: Apache-2.0
"""Pulsar's object of a namespace, as it is created with and as it is shown.

Owns which of its fields are policies of this broker, which are taken only where they ask for nothing (a single node has
no rates between clusters, no offloading), and what those show. Whatever would not be kept is refused.
Source: Pulsar docs, "Admin API - namespaces".
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import NO_GRANTS, Policies
from broker_core.broker.broker import Broker
from broker_core.server.admin.answers import BadRequestError, RefusedError
from broker_core.server.admin.bodies import converted
from broker_core.server.admin.kept import OF_NAMESPACES
from broker_core.server.admin.policies import quota_answer

BUNDLES: Final[dict[str, Any]] = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
"""The bundles of a namespace: one range of all hashes, because one broker serves all topics."""

BUNDLE: Final = "_".join(BUNDLES["boundaries"])
"""The name of the one bundle."""

_NOTHING: Final[dict[str, Any]] = {
    "allowed_clusters": [],
    "clusterDispatchRate": {},
    "latency_stats_sample_rate": {},
    "deleted": False,
    "encryption_required": False,
    "migrated": False,
}
"""Fields that are always shown, with the only value that they can have."""

_UNSET_SCHEMAS: Final[dict[str, Any]] = {
    "schema_compatibility_strategy": "UNDEFINED",
    "schema_validation_enforced": False,
    "is_allow_auto_update_schema": True,
}
"""Policies of schemas as Pulsar shows them where they are not set."""

_NOT_SHOWN: Final[dict[str, Any]] = dict.fromkeys(
    (
        *("offload_policies", "entryFilters", "resource_group_name"),
        "dispatcherPauseOnAckStatePersistentEnabled",
    )
)
"""Fields that are shown where they are set, which they cannot be; and what a client may send that asks for nothing."""

_DEFAULTS: Final = {
    **{field: policy.unset for field, policy in OF_NAMESPACES.items() if policy.unset is not None},
}
"""Policies that are kept without effect -> value that means that nobody has set them."""

_SHOWN: Final = frozenset(field for field, policy in OF_NAMESPACES.items() if not policy.hidden)
_SHOWN_DEFAULTS: Final = {field: value for field, value in _DEFAULTS.items() if value == OF_NAMESPACES[field].unset}

_THRESHOLD: Final = "compaction_threshold"

_CLUSTERS: Final = ("replication_clusters", "allowed_clusters")

_OF_CLUSTERS: Final = (
    *("publishMaxMessageRate", "topicDispatchRate", "subscriptionDispatchRate", "replicatorDispatchRate"),
    "clusterSubscribeRate",
)
"""Policies that Pulsar keeps by cluster, of which there is one."""


_FIELDS: Final = {field.encode_name for field in msgspec.structs.fields(Policies)} - {"kept"}


def namespace_object(broker: Broker, name: NamespaceName) -> dict[str, Any]:
    """Everything that is set for an existing namespace, and what it has without being asked."""
    policies = broker.policies.of_namespace(name)
    quotas = {kind: quota_answer(quota) for kind, quota in (policies.backlog_quota_map or {}).items()}
    shown = msgspec.to_builtins(policies)
    kept = shown.pop("kept", {})
    shown |= {field: value for field, value in kept.items() if field in _SHOWN}
    cluster = broker.policies.settings.cluster_name
    return {
        **_NOTHING,
        **_SHOWN_DEFAULTS,
        **_UNSET_SCHEMAS,
        "replication_clusters": [cluster],
        "bundles": BUNDLES,
        "properties": {},
        "subscription_types_enabled": [],
        "auth_policies": msgspec.to_builtins(NO_GRANTS),
        "subscription_auth_mode": "None",
        **shown,
        **{rate: {cluster: shown[rate]} if rate in shown else {} for rate in _OF_CLUSTERS},
        "backlog_quota_map": quotas,
    }


def policies_asked_for(content: dict[str, Any], cluster: str) -> Policies:
    """The policies of a new namespace; a refusal if it would have something that this broker cannot keep.

    The number of bundles is ignored: Pulsar's brokers change it by themselves, and here there is one.
    """
    given = {field: value for field, value in content.items() if value not in (None, "") and field != "bundles"}
    for field in _CLUSTERS:
        if (clusters := given.pop(field, [])) not in ([], [cluster]):
            raise RefusedError(403, f"{str(clusters)[:80]} is not the cluster of this broker, [{cluster!r}]")
    for rate in _OF_CLUSTERS:
        rates = given.pop(rate, {})
        if not isinstance(rates, dict) or set(rates) - {cluster}:
            raise BadRequestError(f"{rate} of {str(rates)[:80]!r} is not a rate of the cluster {cluster!r}")
        if rates:
            given[rate] = rates[cluster]
    for field, nothing in {**_NOTHING, **_NOT_SHOWN}.items():
        if (value := given.pop(field, nothing)) != nothing and not _is_empty(value):
            raise BadRequestError(
                f"{field} of {str(value)[:80]!r} cannot be kept: this broker does nothing about it; leave it out"
            )
    kept = _kept_of(given)
    unknown = set(given) - _FIELDS
    if unknown:
        raise BadRequestError(f"a namespace has no policy {min(unknown)!r}")
    policies = msgspec.structs.replace(_read(given), kept=kept or None)
    for topic in (policies.auth_policies or NO_GRANTS).destination_auth:
        TopicName.parse(topic)
    if policies.auth_policies == NO_GRANTS:
        policies = msgspec.structs.replace(policies, auth_policies=None)
    return policies


def _read(given: dict[str, Any]) -> Policies:
    """The policies with an effect; a refusal if one has a value that it cannot have."""
    if isinstance(threshold := given.get(_THRESHOLD), int) and threshold < 0:
        raise RefusedError(412, f"{_THRESHOLD} cannot be {threshold}: it must be 0 or more")
    try:
        policies: Policies = converted(given, Policies)
    except msgspec.ValidationError as error:
        raise BadRequestError(f"the policies cannot be read: {error}") from error
    return policies


def _kept_of(given: dict[str, Any]) -> dict[str, Any]:
    """The policies without effect, taken out of ``given``; those that ask for nothing are left out."""
    named = {field: given.pop(field) for field in OF_NAMESPACES if field in given}
    asking = {field: value for field, value in named.items() if value != _DEFAULTS.get(field)}
    return {field: OF_NAMESPACES[field].value(value) for field, value in asking.items()}


def _is_empty(value: object) -> bool:
    """A map in which nothing is named, at any depth that Pulsar's have."""
    return isinstance(value, dict) and all(each in ({}, None) for each in value.values())
