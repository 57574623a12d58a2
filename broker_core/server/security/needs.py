# SPDX-License-Identifier: Apache-2.0
"""Needs of the admin REST in Pulsar's words: status and text with which its brokers refuse each kind of operation.

Pulsar answers 401 for topics and tenants where HTTP has 403, and 403 for namespaces and policies; admin tools take both
for a missing right. Source: Pulsar docs, "Security - Authorization"; the texts are those of its broker.
"""

from __future__ import annotations

from typing import Final

from broker_core.server.security.rights import About, Need, Right

FREE: Final = Need(Right.NONE, About.NOTHING)
"""Open to everybody, also without credentials."""

KNOWN: Final = Need(Right.IDENTITY, About.CLUSTER)
"""Open to everybody who has authenticated."""

SUPERUSER: Final = Need(Right.SUPERUSER, About.CLUSTER, "This operation requires super-user access", 401)

TRANSACTION_OWNER: Final = Need(Right.OWNER, About.TRANSACTION, SUPERUSER.refusal, SUPERUSER.status)
"""The role that began the transaction, and superusers."""

TENANT_ADMIN: Final = "Don't have permission to administrate resources on this tenant"

_BOTH: Final = (
    "Unauthorized to {check} for originalPrincipal [{{original}}] and clientAppId [{{role}}] "
    "about operation [{operation}]{thing}"
)


def of_brokers(operation: str) -> Need:
    """Superusers: the broker itself."""
    return _both("validateBothSuperuserAndBrokerOperation", operation, " on the broker")


def of_clusters(operation: str) -> Need:
    """Superusers: clusters."""
    return _both("validateBothSuperuserAndClusterOperation", operation, " on the cluster")


def of_cluster_policies(operation: str) -> Need:
    """Superusers: which brokers serve which namespaces."""
    return _both("validateBothSuperuserAndClusterPolicyOperation", operation, " on the cluster")


def of_tenants(operation: str) -> Need:
    """Superusers: which tenants exist, and their administrators."""
    return _both("validateBothTenantOperationAndSuperUser", operation, "")


def _both(check: str, operation: str, thing: str) -> Need:
    text = _BOTH.format(check=check, operation=operation, thing=thing)
    return Need(Right.SUPERUSER, About.CLUSTER, text, 401, operation)


def in_tenant(operation: str) -> Need:
    """Administrators of the tenant: which namespaces it has."""
    text = _BOTH.format(check="validateTenantOperation", operation=operation, thing=" on tenant [{tenant}]")
    return Need(Right.ADMINISTER, About.TENANT, text, 401, operation)


def administer(about: About) -> Need:
    """Administrators of the tenant, where Pulsar asks for nothing more exact."""
    return Need(Right.ADMINISTER, about, TENANT_ADMIN, 401)


def of_namespace(operation: str, right: Right = Right.ADMINISTER, about: About = About.NAMESPACE) -> Need:
    """An operation on a namespace."""
    return Need(
        right,
        about,
        f"Unauthorized to validateNamespaceOperation for operation [{operation}] on namespace [{{namespace}}]",
        403,
        operation,
    )


def of_topic(operation: str, right: Right = Right.ADMINISTER, about: About = About.TOPIC) -> Need:
    """An operation on a topic or on subscriptions of it."""
    text = f"Unauthorized to validateTopicOperation for operation [{operation}] on topic [{{topic}}]"
    return Need(right, about, text, 401, operation)


def of_policy(path: str, method: str, *, of_topic: bool) -> Need:
    """Read or write the policy with this last part of its path, of a topic or a namespace."""
    if path in _OWN_NEEDS:
        return _OWN_NEEDS[path]
    check, thing = ("Topic", "topic [{topic}]") if of_topic else ("Namespace", "namespace [{namespace}]")
    operation = "READ" if method == "GET" else "WRITE"
    return Need(
        Right.ADMINISTER,
        About.TOPIC if of_topic else About.NAMESPACE,
        f"Unauthorized to validate{check}PolicyOperation for operation [{operation}] "
        f"on {thing} on policy [{_POLICIES[path]}]",
        403,
        f"{operation} {_POLICIES[path]}",
    )


_OWN_NEEDS: Final = {"maxMessageSize": administer(About.TOPIC), "persistence/bookieAffinity": SUPERUSER}
"""Policies that Pulsar does not check as policies: last part of the path -> need."""

_POLICIES: Final = {
    "": "ALL",
    "policies": "ALL",
    "antiAffinity": "ANTI_AFFINITY",
    "autoSubscriptionCreation": "AUTO_SUBSCRIPTION_CREATION",
    "autoTopicCreation": "AUTO_TOPIC_CREATION",
    **dict.fromkeys(("backlogQuota", "backlogQuotaMap"), "BACKLOG"),
    "compactionThreshold": "COMPACTION",
    **dict.fromkeys(("deduplication", "deduplicationEnabled"), "DEDUPLICATION"),
    "deduplicationSnapshotInterval": "DEDUPLICATION_SNAPSHOT",
    "delayedDelivery": "DELAYED_DELIVERY",
    "encryptionRequired": "ENCRYPTION",
    "entryFilters": "ENTRY_FILTERS",
    "inactiveTopicPolicies": "INACTIVE_TOPIC",
    **dict.fromkeys(("maxConsumers", "maxConsumersPerSubscription", "maxConsumersPerTopic"), "MAX_CONSUMERS"),
    **dict.fromkeys(("maxProducers", "maxProducersPerTopic"), "MAX_PRODUCERS"),
    "maxSubscriptionsPerTopic": "MAX_SUBSCRIPTIONS",
    "maxTopicsPerNamespace": "MAX_TOPICS",
    **dict.fromkeys(("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer"), "MAX_UNACKED"),
    **dict.fromkeys(("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription"), "MAX_UNACKED"),
    "messageTTL": "TTL",
    **dict.fromkeys(
        ("offloadDeletionLagMs", "offloadPolicies", "offloadThreshold", "offloadThresholdInSeconds"), "OFFLOAD"
    ),
    "partitions": "PARTITION",
    "persistence": "PERSISTENCE",
    **dict.fromkeys(("dispatchRate", "publishRate", "subscribeRate", "subscriptionDispatchRate"), "RATE"),
    "replication": "REPLICATION",
    "replicatorDispatchRate": "REPLICATION_RATE",
    "retention": "RETENTION",
    **dict.fromkeys(
        (
            *("isAllowAutoUpdateSchema", "schemaCompatibilityStrategy", "schemaValidationEnforced"),
            "schemaAutoUpdateCompatibilityStrategy",
        ),
        "SCHEMA_COMPATIBILITY_STRATEGY",
    ),
    **dict.fromkeys(("subscriptionAuthMode", "subscriptionTypesEnabled"), "SUBSCRIPTION_AUTH_MODE"),
    "subscriptionExpirationTime": "SUBSCRIPTION_EXPIRATION_TIME",
}
"""Last part of a policy's path -> Pulsar's name of the policy."""
