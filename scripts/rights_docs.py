# SPDX-License-Identifier: Apache-2.0
"""The page ``docs/rights.md``: the right of each wire command and each admin path, made from their table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker_core.server.admin.app import all_routes
from broker_core.server.conversation import RULES, SEND_NEED
from broker_core.server.security.rights import Need
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand

_INTRO: Final = (
    "# Rights",
    "",
    "Made from the code by `make docs`; do not edit. [security.md](security.md#rights) says who has which right.",
    "",
    "With `authorizationEnabled` every command and every request needs the right below on the resource that it names.",
    "A superuser has all rights, an administrator of a tenant all but those of superusers in the tenant, and others",
    "have those that were granted to their roles. Rights are checked before anything is looked up: without the right",
    "nobody learns what exists. A broker with a command or path that is not in this table does not start.",
    "",
)

_COMMANDS: Final = (
    "## Wire commands",
    "",
    "A refusal is the answer of the command with `AuthorizationError` and this text. What a producer or consumer does",
    "stands on the right with which it was opened: when that is taken away, it is closed.",
    "",
    "| command | right | on | refusal |",
    "|---|---|---|---|",
)

_REST: Final = (
    "",
    "## Admin REST",
    "",
    "A refusal has this status, and a reason that names Pulsar's operation, where it has one.",
    "",
    "| method | path | right | on | refusal |",
    "|---|---|---|---|---|",
)


def rights_markdown() -> str:
    """All commands by name, then all paths."""
    return "\n".join((*_INTRO, *_COMMANDS, *_command_rows(), *_REST, *_path_rows())) + "\n"


def _command_rows() -> Iterator[str]:
    named = {BaseCommand.Type.Name(kind): rule.need for kind, rule in RULES.items()} | {"SEND": SEND_NEED}
    for name, need in sorted(named.items()):
        yield f"| {name} | {_right(need)} | {need.refusal} |"


def _path_rows() -> Iterator[str]:
    rows: dict[str, Need] = {}
    methods: dict[str, list[str]] = {}
    for route in all_routes():
        for method in sorted((route.methods or set()) - {"HEAD"}):
            key = f"{route.path} {route.need}"
            if method not in methods.setdefault(key, []):
                methods[key].append(method)
            rows.setdefault(key, route.need)
    for key, need in sorted(rows.items()):
        path = key.partition(" ")[0]
        yield f"| {', '.join(methods[key])} | `{path}` | {_right(need)} | {_refusal(need)} |"


def _right(need: Need) -> str:
    return f"{need.right.value} | {need.about.value}"


def _refusal(need: Need) -> str:
    return f"{need.status} {need.operation}".strip() if need.refusal else ""
