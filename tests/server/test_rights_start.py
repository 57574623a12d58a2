# SPDX-License-Identifier: Apache-2.0
"""A broker starts only where each command and path has its right, and where its settings protect something."""

from __future__ import annotations

from typing import Any, cast

import pytest

from broker_core.base.errors import ConfigError
from broker_core.base.invariants import InvariantError
from broker_core.base.settings import Settings
from broker_core.server.admin.app import all_routes, in_the_table
from broker_core.server.admin.requests import Route
from broker_core.server.conversation import RULES, check_rights
from broker_core.server.security import needs
from broker_core.server.security.gate import check_settings
from broker_core.server.security.rights import About, Need, Right
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand
from tests.server.rights_world import SECURED

NO_NEED = cast("Need", None)


async def handler(_request: object) -> None:
    """Never called."""


def test_every_command_and_every_path_is_in_the_table() -> None:
    """Those that the broker has."""
    check_rights(RULES)
    assert in_the_table(all_routes()) == all_routes()


@pytest.mark.parametrize("kind", sorted(RULES), ids=lambda kind: str(BaseCommand.Type.Name(kind)))
def test_a_command_without_a_right_stops_the_start(kind: int) -> None:
    """Whichever it is."""
    with pytest.raises(InvariantError, match="is not in the table of rights"):
        check_rights({**RULES, kind: RULES[kind]._replace(need=NO_NEED)})


def test_a_path_without_a_right_stops_the_start() -> None:
    """No default could be right for all."""
    make: Any = Route
    with pytest.raises(TypeError, match="need"):
        make("/admin/v2/new", handler)
    with pytest.raises(InvariantError, match="/admin/v2/new is not in the table of rights"):
        in_the_table([Route("/admin/v2/new", handler, NO_NEED)])


NOT_IN_PATHS = (About.NOTHING, About.OPENED, About.TRANSACTION, About.CLUSTER, About.NAMESPACE_IN_BODY)


@pytest.mark.parametrize("about", [each for each in About if each not in NOT_IN_PATHS])
def test_a_right_about_something_that_the_path_does_not_name_stops_the_start(about: About) -> None:
    """The border could not tell whose it is."""
    with pytest.raises(InvariantError, match="is about a"):
        in_the_table([Route("/admin/v2/new/{name}", handler, needs.administer(about))])


def test_every_right_but_those_of_everybody_has_its_refusal() -> None:
    """Status and text, by which clients know what is missing; to commands the coordinator of transactions has it."""
    free = (Right.NONE, Right.OPENED, Right.IDENTITY)
    of_commands = [rule.need for rule in RULES.values() if rule.need.right is not Right.OWNER]
    for need in (*of_commands, *(route.need for route in all_routes())):
        assert bool(need.refusal) == (need.right not in free), need
    assert all(need.status == 0 for need in of_commands)
    assert all(route.need.status in (401, 403) for route in all_routes() if route.need.refusal)


def test_paths_that_are_open_to_everybody_are_few() -> None:
    """A crawl of all paths without credentials finds these."""
    free = {route.path for route in all_routes() if route.need.right is Right.NONE}
    assert free == {"/admin/v2/brokers/ready", "/admin/v2/brokers/version", "/metrics", "/metrics/"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"authentication_enabled": False, "token_secret_key": ""}, "authenticationEnabled is not"),
        ({"anonymous_user_role": "root"}, "superuser or a proxy"),
        ({"anonymous_user_role": "proxy"}, "superuser or a proxy"),
    ],
)
def test_settings_that_protect_nothing_stop_the_start(settings: dict[str, Any], why: str) -> None:
    """A broker that seems to check rights, and does not, is worse than one that does not."""
    with pytest.raises(ConfigError, match=why):
        check_settings(Settings(**{**SECURED, **settings}))
    check_settings(Settings(**SECURED))
