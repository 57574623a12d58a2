# SPDX-License-Identifier: Apache-2.0
"""Requests about backlogs, single messages and what is deleted, to our broker and to a real Apache Pulsar."""

from __future__ import annotations

from typing import Final

import httpx
import pytest

from broker_core.client import Client
from tests.server.oracle import NOTHING, Ask, Both, N, Q, T, compare

pytestmark = pytest.mark.pulsar

FIRST: Final = '{"ledgerId":-1,"entryId":-1}'

ANALYSIS: Final = (
    *("entries", "messages", "markerMessages", "aborted", "firstMessageId", "lastMessageId"),
    *(f"filter{what}{of}" for what in ("Accepted", "Rejected", "Rescheduled") for of in ("Entries", "Messages")),
)

NAMES: Final = [
    *(Ask("GET", f"{topic}/partitions") for topic in (T, Q)),
    *(Ask("GET", f"{topic}/partitions?checkAllowAutoCreation=true") for topic in (T, Q)),
    Ask("GET", f"{NOTHING}/partitions", same=False),
    Ask("GET", f"{N}/topics"),
    Ask("GET", f"{N}/topics?mode=ALL"),
    Ask("GET", "namespaces/public/nowhere/topics", same=False),
    Ask("GET", "persistent/{}"),
    Ask("GET", "persistent/{}/partitioned"),
    Ask("GET", "persistent/public/nowhere", same=False),
    Ask("GET", "non-persistent/{}"),
    Ask("GET", "tenants/public"),
    Ask("GET", "tenants/nope", same=False),
    Ask("PUT", "tenants/public", '{"allowedClusters":["standalone"]}', same=False),
    Ask("GET", "namespaces/nope", same=False),
    Ask("GET", "clusters"),
    Ask("GET", "clusters/standalone", same=False, fields=("serviceUrl", "brokerServiceUrl")),
    Ask("GET", "clusters/nope", same=False),
    Ask("PUT", "clusters/standalone", '{"serviceUrl":"http://localhost:8080"}', same=False),
    *(Ask("GET", f"brokers/{what}") for what in ("health", "ready")),
    *(Ask("GET", f"brokers{what}", same=False) for what in ("", "/standalone", "/version")),
    Ask("GET", "brokers/leaderBroker", same=False, fields=("serviceUrl", "brokerId")),
    Ask("PUT", "persistent/{}/q-partition-1", "{}", same=False),
    Ask("PUT", "persistent/{}/q-partition-7", "{}", same=False),
    Ask("PUT", f"{N}/unload"),
    Ask("GET", f"{N}/properties"),
]

MESSAGES: Final = [
    *(
        Ask("GET", f"{T}/examinemessage?initialPosition={origin}&messagePosition={place}")
        for origin in ("earliest", "latest")
        for place in (1, 3, 10, 11, 0, -1)
    ),
    Ask("GET", f"{T}/examinemessage"),
    Ask("GET", f"{T}/examinemessage?messagePosition=x", same=False),
    Ask("GET", f"{T}/examinemessage?initialPosition=nope", same=False),
    Ask("GET", "persistent/{}/empty/examinemessage", same=False),
    Ask("GET", f"{Q}/examinemessage", same=False),
    Ask("GET", f"{NOTHING}/examinemessage", same=False),
    Ask("GET", f"{T}/messageid/0", same=False, fields=("ledgerId", "entryId", "partitionIndex")),
    Ask("GET", f"{T}/lastMessageId", same=False, fields=("ledgerId", "entryId", "partitionIndex")),
    Ask("GET", f"{Q}/lastMessageId", same=False),
    Ask("GET", f"{T}/subscription/s/position/1"),
    Ask("GET", f"{T}/subscription/s/position/10"),
    Ask("GET", f"{T}/subscription/nope/position/1", same=False),
]

BACKLOGS: Final = [
    Ask("POST", f"{T}/subscription/s/analyzeBacklog", same=False, fields=ANALYSIS),
    Ask("POST", f"{T}/subscription/s/analyzeBacklog", FIRST, same=False, fields=ANALYSIS),
    Ask("POST", f"{T}/subscription/s/analyzeBacklog", "[1]", same=False),
    Ask("POST", f"{T}/subscription/absent/analyzeBacklog", same=False),
    Ask("POST", f"{Q}/subscription/s/analyzeBacklog", same=False),
    Ask("POST", f"{NOTHING}/subscription/s/analyzeBacklog", same=False),
    Ask("PUT", f"{T}/backlogSize", FIRST, same=False),
    Ask("PUT", f"{T}/backlogSize", same=False),
    Ask("PUT", f"{Q}/backlogSize", FIRST, same=False),
    Ask("PUT", f"{NOTHING}/backlogSize", FIRST, same=False),
    *(
        Ask("POST", f"{topic}/all_subscription/expireMessages/100000", same=False)
        for topic in (T, Q, "persistent/{}/empty", NOTHING)
    ),
    *(
        Ask("POST", f"{topic}/subscription/s/{what}", same=False)
        for topic in (T, Q, NOTHING)
        for what in ("skip/0", "skip_all", "expireMessages/100000", "resetcursor/0")
    ),
    Ask("POST", f"{N}/clearBacklog"),
    Ask("POST", f"{N}/clearBacklog/s"),
    Ask("POST", f"{N}/clearBacklog/nope"),
    Ask("POST", "namespaces/public/nowhere/clearBacklog", same=False),
    Ask("GET", f"{T}/stats", same=False, fields=("subscriptions.s.msgBacklog",)),
]

BUNDLE: Final = f"{N}/0x00000000_0xffffffff"
NO_BUNDLES: Final = ("0x00000000_0x80000000", "0x00000001_0xffffffff", "0x00000000_0xfffffffff", "nonsense")
OF_A_BUNDLE: Final = (
    ("PUT", "unload"),
    ("POST", "clearBacklog"),
    ("POST", "clearBacklog/s"),
    ("POST", "clearBacklog/nope"),
    ("POST", "unsubscribe/nope"),
    ("POST", "unsubscribe/s"),
)
BUNDLES: Final = [
    Ask("PUT", N, '{"bundles":{"numBundles":1}}'),
    Ask("GET", f"{N}/bundles"),
    Ask("PUT", T, "{}"),
    Ask("PUT", f"{T}/subscription/s", '"earliest"'),
    Ask("PUT", f"{BUNDLE}/unload?destinationBroker=nowhere:8080", same=False),
    *(Ask(method, f"{BUNDLE}/{what}", same=False) for method, what in OF_A_BUNDLE),
    Ask("GET", f"{T}/subscriptions"),
    *(
        Ask(method, f"{place}/{what}", same=False)
        for place in (
            *(f"{N}/{bundle}" for bundle in NO_BUNDLES),
            *(f"namespaces/{absent}/0x00000000_0xffffffff" for absent in ("public/nowhere", "nobody/nowhere")),
        )
        for method, what in OF_A_BUNDLE
    ),
]

DELETING: Final = [
    *(Ask("POST", f"{topic}/createMissedPartitions", same=False) for topic in (T, Q, NOTHING)),
    *(Ask("POST", f"{topic}/trim", same=False) for topic in (T, Q, NOTHING)),
    *(Ask("DELETE", f"{topic}/truncate", same=False) for topic in (T, Q, NOTHING)),
    *(Ask("PUT", f"{topic}/unload", same=False) for topic in (T, Q, NOTHING)),
    Ask("POST", f"{T}/messageTTL?messageTTL=7"),
    Ask("DELETE", f"{T}/policies", same=False),
    Ask("GET", f"{T}/messageTTL"),
    Ask("DELETE", f"{NOTHING}/policies", same=False),
    Ask("POST", f"{N}/unsubscribe/nope"),
    Ask("POST", f"{N}/unsubscribe/s"),
    Ask("GET", f"{T}/subscriptions"),
    Ask("GET", f"{Q}/subscriptions"),
    Ask("POST", "namespaces/public/nowhere/unsubscribe/s", same=False),
]


@pytest.fixture
def filled(both: Both) -> Both:
    """Ten messages in ``t``, none in ``empty``, three partitions of ``q``; a subscription ``s`` of each."""
    asks = [Ask("PUT", N), Ask("PUT", "persistent/{}/empty", "{}"), Ask("PUT", f"{Q}/partitions", "3")]
    assert compare(both, asks) == []
    both.fill()
    assert compare(both, [Ask("PUT", f"{topic}/subscription/s", '"earliest"') for topic in (T, Q)]) == []
    return both


def test_names_answer_as_pulsars(filled: Both) -> None:
    """1.1.1, 1.2.2: what there is: clusters, tenants, namespaces, topics and their partitions."""
    assert compare(filled, NAMES) == []


def test_messages_answer_as_pulsars(filled: Both) -> None:
    """1.4.6: looking at messages by place, time and id; of a partitioned topic by its partitions only."""
    assert compare(filled, MESSAGES) == []


def test_messages_say_of_themselves_what_pulsars_do(filled: Both) -> None:
    """1.5, 1.6, 5.1.3, 6.1.1: keys, times, batches and chunks are in the headers of a message that is looked at."""
    topic = f"{filled.namespace}/told"
    found = []
    for side in filled.sides:
        with Client(side.service_url) as client:
            client.subscribe(topic, "s", type="shared").close()
            with client.create_producer(topic, name="plain", batching_enabled=False) as producer:
                producer.send(b"0")
                producer.send(b"1", key="k", properties={"a": "1"}, event_time_ms=1_234_567_890_123)
                producer.send(b"2", key=b"\x00", ordering_key=b"o", deliver_at_ms=33_000_000_000_123)
            with client.create_producer(topic, name="batches", compression="zlib") as producer:
                producer.send(b"3" * 100, key="k")
            with client.create_producer(
                topic, name="chunks", chunking_enabled=True, batching_enabled=False, chunk_max_message_size=200
            ) as producer:
                producer.send(b"4" * 400)
        with side.admin() as admin:
            looks = [f"persistent/{topic}/subscription/s/position/{number}" for number in range(1, 7)]
            answers = [admin.get(look) for look in looks]
        assert {answer.status_code for answer in answers} == {200}
        found.append([_headers(answer) for answer in answers])
    assert found[0] == found[1]


def _headers(answer: httpx.Response) -> dict[str, str]:
    """What an entry says of itself. Our broker also says its time and index, a Pulsar only if it is set to."""
    own = {name: value for name, value in answer.headers.items() if name.startswith("x-pulsar-")}
    changing = ("x-pulsar-message-id", "x-pulsar-publish-time")
    return {
        name: "" if name in changing else value.replace(" ", "")
        for name, value in own.items()
        if "broker-entry" not in name
    }


def test_backlogs_answer_as_pulsars(filled: Both) -> None:
    """1.4.6, 7.2, 7.15: what is counted, passed over and expired, of one topic, its partitions and a namespace."""
    assert compare(filled, BACKLOGS) == []


def test_bundles_answer_as_pulsars(both: Both) -> None:
    """7.2: unloading, clearing and unsubscribing by bundle; there is one, and other names of bundles are refused."""
    assert compare(both, BUNDLES) == []


def test_deleting_answers_as_pulsars(filled: Both) -> None:
    """7.1, 7.15: trimming, truncating, unloading, removing policies and subscriptions."""
    assert compare(filled, DELETING) == []
