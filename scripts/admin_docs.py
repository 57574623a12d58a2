# SPDX-License-Identifier: Apache-2.0
"""The page ``docs/admin.md``: every path of the admin REST, made from the routes and what their handlers say."""

from __future__ import annotations

import inspect
from typing import Final

from starlette.routing import Route

from broker_core.base.policies import POLICIES, Policy
from broker_core.broker.cluster_settings import OF_CLUSTERS
from broker_core.server.admin.app import SECTIONS
from broker_core.server.admin.kept import KEPT, Kept
from broker_core.server.admin.unkept import UNKEPT, Unkept

_INTRO: Final = (
    "# Admin REST",
    "",
    "Made from the code by `make docs`; do not edit.",
    "",
    "Pulsar's paths, JSON and status codes, on the loopback address (`pulsarish serve` prints the port). An error is",
    '`{"reason": "..."}` under a 4xx status: 400 for a body or parameter that cannot be read, 403 for a request of',
    "another site's page or to a name that is not this machine's, 404 for what does not exist, 405 for what is not",
    "possible there, 406 for a number of partitions that cannot be (422 where a topic is to grow), 409 for what is in",
    "the way, 412 for a value or state that does not fit, 413 for a body that is too large, 415 for one that is",
    "compressed.",
    "",
    "Names in paths are percent-encoded UTF-8, as Apache Pulsar has it: topics once, a subscription in the path of a",
    "topic twice (`team/job` is `team%252Fjob`), in the path of a namespace once. A plus sign in a name is a blank; a",
    "plus is `%2B`, and `%252B` where a name is encoded twice. `team%2Fjob` is read as well: decoded once, it holds",
    "nothing that the second time changes.",
    "",
    "[openapi.json](openapi.json) has the same for tools: OpenAPI 3.1, with the right that each request needs.",
    "",
    "[admin-differences.md](admin-differences.md) lists the answers that differ from those of Apache Pulsar, with the",
    "reason of each.",
    "",
)

_POLICIES: Final = (
    "## Policies",
    "",
    "Each is a path of its own under `/admin/v2/namespaces/{tenant}/{namespace}/` and under",
    "`/admin/v2/persistent/{tenant}/{namespace}/{topic}/`: GET reads it (empty if it is not set), POST sets it, DELETE",
    "removes it; DELETE of `policies` removes all that a topic has. A topic's value goes before its namespace's, that",
    "before the broker's setting; `?applied=true` on a topic asks for what is in force, where the last column says so.",
    "Of a partitioned topic they are set under its own name; its partitions have none (412).",
    "Topics that are not stored have the same paths under `/admin/v2/non-persistent/`; what means nothing to them",
    "cannot be set (405).",
    "",
    "A rate is exact in the mean: what goes beyond it at once is paid for before anything else passes, and what nobody",
    "used is not made up for. `publishRate` is that of all producers of a topic together. While it is used up the",
    "connection of a producer is not read, so that consumers on the same connection wait, too. `dispatchRate` is that",
    "of all consumers of a topic, `subscriptionDispatchRate` that of each of its subscriptions, in messages and bytes",
    "of a `ratePeriodInSecond`. 0 or less is no limit. Those of a namespace hold for its stored topics.",
    "`subscribeRate` is how often a consumer, known by its name and host, may subscribe to a topic in a period; beyond",
    "it the consumer is told so. `relativeToPublishRate` of a rate is refused.",
    "",
    "With `inactiveTopicPolicies` a topic that nobody uses is deleted, with what is stored in it: by its mode one that",
    "has no subscriptions, or one whose subscriptions have no backlog, once it had no clients for",
    "`maxInactiveDurationSeconds`. Of a partitioned topic the partitions are deleted; they come again with its use.",
    "",
    "| of a namespace | of a topic | applied |",
    "|---|---|---|",
    "| `backlogQuotaMap` (GET), `backlogQuota?backlogQuotaType=` | the same | yes |",
    "| `messageTTL` (seconds in the body) | `messageTTL?messageTTL=SECONDS` | yes |",
)


_KEPT: Final = (
    "",
    "These are kept and shown, as admin tools expect it, and **have no effect here**. A namespace may be created with",
    "them. The last column says why nothing acts on them:",
    "",
    "| of a namespace | of a topic | why not |",
    "|---|---|---|",
)

_SETTINGS: Final = (
    "",
    "So are these dynamic settings (`brokers/configuration`), which only brokers of a cluster use, or their metadata:",
    "",
)

_UNKEPT: Final = (
    "",
    "Policies that are not kept are answered as where nobody has set them, and may be removed. To set one is refused",
    "(405), unless what is asked for holds anyway:",
    "",
    "| of a namespace | of a topic | why not |",
    "|---|---|---|",
)


def admin_markdown() -> str:
    """All paths by section, then the policies."""
    lines = [*_INTRO]
    for title, routes in SECTIONS:
        lines += [f"## {title}", "", "| method | path | what it does |", "|---|---|---|"]
        lines += [_row(route) for route in routes]
        lines.append("")
    lines += _POLICIES
    for policy in POLICIES:
        if not policy.own_requests:
            lines.append(f"| {_names(policy)} | {'yes' if policy.applied else ''} |")
    lines += _KEPT
    lines += [f"| {_names(policy)} | {policy.why} |" for policy in KEPT]
    lines += [*_SETTINGS, ", ".join(f"`{name}`" for name in sorted(OF_CLUSTERS)) + "."]
    lines += _UNKEPT
    lines += [f"| {_names(policy)} | {policy.why} |" for policy in UNKEPT]
    return "\n".join(lines) + "\n"


def _names(policy: Policy | Kept | Unkept) -> str:
    return " | ".join(f"`{name}`" if name else "" for name in (policy.namespace, policy.topic))


def _row(route: Route) -> str:
    methods = ", ".join(sorted((route.methods or set()) - {"HEAD"}))
    what = " ".join((inspect.getdoc(route.endpoint) or "").split())
    return f"| {methods} | `{route.path}` | {what} |"
