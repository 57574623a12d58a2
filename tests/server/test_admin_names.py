# SPDX-License-Identifier: Apache-2.0
"""Names of subscriptions and topics in the paths of the admin REST: each call reaches the one that was named.

Every call of our client with a subscription in its path, for names that some way of encoding would take for another,
on our broker and on an Apache Pulsar; and every way of writing a name into a path, answered alike by both.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus, unquote

import pytest

from broker_core.base.names import TopicName
from broker_core.base.positions import MessageId
from broker_core.client import Client
from broker_core.client.admin import AdminApi, AdminRefusedError
from tests.server.oracle import TIMEOUT_S, Ask, Both, N, T, compare

pytestmark = pytest.mark.pulsar

NAMES: Final = (
    "a b",
    "a+b",
    "a/b",
    "a%2Fb",
    "a%2Bb",
    "a%20b",
    "a%b",
    "100%",
    "a:b",
    "a?b",
    "a#b",
    "zażółć 冬",
    "a\\b&c;d",
)
"""Each is a legal name of a subscription; some are others, encoded once."""

PATIENCE_S: Final = 60.0
MESSAGES: Final = 3

_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")

Act = Callable[[AdminApi, TopicName, str, MessageId], None]

CHANGES: Final[dict[str, tuple[int, int, Act]]] = {
    "skip": (3, 2, lambda admin, topic, name, first: admin.skip_messages(topic, name, 1)),
    "clear": (3, 0, lambda admin, topic, name, first: admin.clear_backlog(topic, name)),
    "expire": (3, 0, lambda admin, topic, name, first: admin.expire_messages(topic, name, 1)),
    "reset to a time": (0, 3, lambda admin, topic, name, first: admin.reset_to_time(topic, name, 1)),
    "reset to a message": (0, 3, lambda admin, topic, name, first: admin.reset_to_message(topic, name, first)),
}
"""Call -> the backlog before and behind it."""

FORMS: Final = tuple(
    dict.fromkeys(
        form
        for name in NAMES
        for form in (
            quote_plus(name),
            quote(name, safe=""),
            quote(quote_plus(name), safe=""),
            quote(quote(name, safe=""), safe=""),
        )
    )
)
"""Names as clients write them into a path: encoded once or twice, a blank as %20 or as a plus sign."""


@pytest.fixture(params=["ours", "apache"])
def admin(request: pytest.FixtureRequest, both: Both) -> Iterator[tuple[AdminApi, str]]:
    """The admin API and the service URL of one of the two brokers."""
    side = both.ours if request.param == "ours" else both.theirs
    with AdminApi(side.http_url, timeout_s=TIMEOUT_S) as api:
        yield api, side.service_url


def subscribed_topic(service_url: str) -> tuple[TopicName, MessageId]:
    """A topic with a subscription of each name, made by Pulsar's protocol, and messages; and the first of these."""
    topic = TopicName.parse(f"public/default/names-{uuid.uuid4().hex[:8]}")
    with Client(service_url) as client:
        for name in NAMES:
            client.subscribe(str(topic), name).close()
        with client.create_producer(str(topic), batching_enabled=False) as producer:
            ids = [producer.send(b"%d" % number) for number in range(MESSAGES)]
    return topic, ids[0]


def backlogs(admin: AdminApi, topic: TopicName) -> dict[str, int]:
    """Subscription -> entries that it has not acknowledged."""
    return {name: stats["msgBacklog"] for name, stats in admin.topic_stats(topic, 0)["subscriptions"].items()}


def act_until(act: Callable[[], None], reached: Callable[[], bool]) -> None:
    """Repeat a call until it has had its effect: messages must be a second old to expire."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            act()
        except AdminRefusedError as error:
            if error.status != 409:  # an Apache Pulsar is expiring them already
                raise
        if reached() or time.monotonic() > deadline:
            return


@pytest.mark.parametrize("call", CHANGES)
def test_a_call_changes_the_subscription_that_it_names(admin: tuple[AdminApi, str], call: str) -> None:
    """1.2.2: and no other one, whatever its name looks like once it is encoded."""
    api, service_url = admin
    before, behind, act = CHANGES[call]
    topic, first = subscribed_topic(service_url)
    if not before:
        for name in NAMES:
            api.clear_backlog(topic, name)
    expected = dict.fromkeys(NAMES, before)
    assert backlogs(api, topic) == expected
    for name in NAMES:
        expected[name] = behind
        act_until(lambda: act(api, topic, name, first), lambda: backlogs(api, topic) == expected)  # noqa: B023 # called here
        assert backlogs(api, topic) == expected, name


def test_a_subscription_is_made_peeked_at_and_deleted_by_its_name(admin: tuple[AdminApi, str]) -> None:
    """1.2.2: a subscription that is deleted by mistake has lost its backlog."""
    api, service_url = admin
    topic, first = subscribed_topic(service_url)
    for name in NAMES:
        assert (seen := api.peeked_entry(topic, name, 1)) is not None
        assert (seen.message_id.ledger, seen.message_id.entry) == (first.ledger, first.entry)
    assert set(backlogs(api, topic)) == set(NAMES)
    left = set(NAMES)
    for name in NAMES:
        left.remove(name)
        api.delete_subscription(topic, name, force=False)
        assert set(backlogs(api, topic)) == left, name
    for name in NAMES:
        left.add(name)
        api.create_subscription(topic, name, "latest")
        assert set(backlogs(api, topic)) == left, name


def test_a_topic_is_made_and_deleted_by_its_name(admin: tuple[AdminApi, str], both: Both) -> None:
    """1.1: names of topics are encoded once, and a slash may be in none on an Apache Pulsar."""
    api, _ = admin
    names = [TopicName.parse(f"persistent://{both.namespace}/{name}") for name in NAMES if "/" not in name]
    api.create_namespace(names[0].namespace_name)
    for number, name in enumerate(names):
        api.create_topic(name, 0)
        assert set(api.topics(name.namespace_name)) == set(names[: number + 1])
    for number, name in enumerate(names):
        assert backlogs(api, name) == {}
        api.delete_topic(name, force=False)
        assert set(api.topics(name.namespace_name)) == set(names[number + 1 :])
    api.delete_namespace(names[0].namespace_name, force=False)


def test_both_brokers_read_a_name_in_a_path_alike(both: Both) -> None:
    """1.2.2: of a subscription twice, of a topic once; a name whose second decoding fails is 400 here and 500 there."""
    asks = [Ask("PUT", N), Ask("PUT", T, "{}")]
    for number, name in enumerate(NAMES):
        path = f"{T}/subscription/{quote(quote(name, safe=''), safe='')}"
        asks += [Ask("PUT", path, '"latest"'), Ask("PUT", f"{path}/properties", f'{{"number":"{number}"}}')]
    asks += [Ask("GET", f"{T}/subscription/{form}/properties") for form in FORMS]
    for form in FORMS:
        path = f"persistent/{{}}/t-{form}"
        asks += [Ask("PUT", path, same=False), Ask("GET", "persistent/{}"), Ask("DELETE", path, same=False)]
    stricter = {("GET", f"{T}/subscription/{form}/properties") for form in FORMS if _BAD_ESCAPE.search(unquote(form))}
    assert compare(both, asks, stricter) == []
