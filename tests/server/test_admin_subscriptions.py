# SPDX-License-Identifier: Apache-2.0
"""Subscriptions and single messages over the admin REST: skip, clear, expire, reset, peek, properties."""

from __future__ import annotations

import uuid

import httpx
import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.compression import ZLIB, compress
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto import pulsar_api_pb2 as pb
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.passing_time import later_ms
from tests.server.test_admin import publish


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{uuid.uuid4().hex}"


def backlog(http: httpx.Client, path: str, subscription: str = "s") -> int:
    found: int = http.get(f"{path}/stats").json()["subscriptions"][subscription]["msgBacklog"]
    return found


def test_messages_are_skipped(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """I3.1: mark-delete moves over so many unacknowledged entries; more than there are means all, 0 none."""
    publish(broker, topic, 10)
    http.put(f"{path}/subscription/s", json="earliest")
    for count, left in (("2", 8), ("0", 8), ("1000", 0)):
        assert http.post(f"{path}/subscription/s/skip/{count}").status_code == 204
        assert backlog(http, path) == left
    for bad in ("-1", "x", "9" * 40, "%D9%A7"):
        assert http.post(f"{path}/subscription/s/skip/{bad}").status_code == 400
    assert http.post(f"{path}/subscription/nope/skip/2").status_code == 404


def test_skipping_counts_what_is_not_acknowledged(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """I3.9: entries acknowledged out of order are not counted, and the consumer that holds the others loses them."""
    places = publish(broker, topic, 6)
    http.put(f"{path}/subscription/s", json="earliest")
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "s", kind=pb.CommandSubscribe.Shared, permits=10))
        for _ in range(6):
            client.next_frame()
        acks = BaseCommand(type=BaseCommand.ACK)
        acks.ack.consumer_id, acks.ack.ack_type = 0, pb.CommandAck.Individual
        for ledger, entry in places[1:3]:
            acks.ack.message_id.add(ledgerId=ledger, entryId=entry)
        client.tell(acks)
        must_succeed(client.open_producer(topic))  # the answer says that the acks before it were taken
        assert http.post(f"{path}/subscription/s/skip/2").status_code == 204
        assert backlog(http, path) == 2
        (consumer,) = http.get(f"{path}/stats").json()["subscriptions"]["s"]["consumers"]
        assert consumer["unackedMessages"] == 2


def test_a_backlog_is_cleared(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """I3.1: skip_all for one subscription, clearBacklog for a namespace; both survive a restart of the topic."""
    publish(broker, topic, 10)
    for name in ("s", "r"):
        http.put(f"{path}/subscription/{name}", json="earliest")
    assert http.post(f"{path}/subscription/s/skip_all").status_code == 204
    assert (backlog(http, path), backlog(http, path, "r")) == (0, 10)
    assert http.post("/namespaces/public/default/clearBacklog/nope").status_code == 204
    assert backlog(http, path, "r") == 10
    assert http.post("/namespaces/public/default/clearBacklog/r").status_code == 204
    http.put(f"{path}/unload")
    assert (backlog(http, path), backlog(http, path, "r")) == (0, 0)
    assert http.post("/namespaces/public/nowhere/clearBacklog").status_code == 404


def test_messages_are_expired_by_age_and_by_position(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.2 (I7.2): the head of the backlog, older than so many seconds or up to a message id."""
    places = publish(broker, topic, 10)  # published in 1970, which makes them no older
    later_ms()
    for name in ("s", "r"):
        http.put(f"{path}/subscription/{name}", json="earliest")
    ledger, entry = places[3]
    where = {"ledgerId": ledger, "entryId": entry}
    assert http.post(f"{path}/subscription/s/expireMessages", json=where | {"excluded": True}).status_code == 204
    assert backlog(http, path) == 7
    assert http.post(f"{path}/subscription/s/expireMessages", json=where).status_code == 204
    assert backlog(http, path) == 6
    assert http.post(f"{path}/subscription/s/expireMessages", json=where | {"ledgerId": 10**6}).status_code == 409
    assert http.post(f"{path}/subscription/s/expireMessages").status_code == 400
    assert http.post(f"{path}/subscription/s/expireMessages/9999999999").status_code == 204
    assert backlog(http, path) == 6
    assert http.post(f"{path}/all_subscription/expireMessages/3600").status_code == 204
    assert (backlog(http, path), backlog(http, path, "r")) == (6, 10)
    assert http.post(f"{path}/all_subscription/expireMessages/0").status_code == 204
    assert (backlog(http, path), backlog(http, path, "r")) == (0, 0)
    assert http.post(f"{path}/subscription/s/expireMessages/x").status_code == 400
    assert http.post(f"{path}/subscription/nope/expireMessages/1").status_code == 404


def test_properties_of_a_subscription(http: httpx.Client, path: str) -> None:
    """1.9.3: given when it is created, and an administrator can replace them; they are kept."""
    http.put(path)
    body = {"ledgerId": -1, "entryId": -1, "properties": {"k": "v"}}
    assert http.put(f"{path}/subscription/s", json=body).status_code == 204
    assert http.get(f"{path}/subscription/s/properties").json() == {"k": "v"}
    assert http.put(f"{path}/subscription/s/properties", json={"l": "w"}).status_code == 204
    http.put(f"{path}/unload")
    assert http.get(f"{path}/subscription/s/properties").json() == {"l": "w"}
    assert http.put(f"{path}/subscription/s/properties", json={"l": [1]}).status_code == 400
    assert http.get(f"{path}/subscription/nope/properties").status_code == 404


def test_properties_of_a_topic(http: httpx.Client, path: str) -> None:
    """1.1.5: of a plain topic and of a partitioned one; a later PUT adds to them."""
    for made, content in ((path, "null"), (f"{path}-p", '{"partitions":2,"properties":{"a":"1"}}')):
        http.put(f"{made}/partitions" if made != path else made, content=content)
        assert made == path or http.get(f"{made}/properties").json() == {"a": "1"}
        http.put(f"{made}/properties", json={"a": "1", "b": "2"})
        assert http.get(f"{made}/properties").json() == {"a": "1", "b": "2"}
        http.put(f"{made}/properties", json={"c": "3"})
        assert http.delete(f"{made}/properties?key=a").status_code == 204
        assert http.get(f"{made}/properties").json() == {"b": "2", "c": "3"}


def test_properties_of_a_partition_that_nobody_has_used_are_kept(http: httpx.Client, path: str) -> None:
    """1.1.5: what is answered with 204 is there."""
    http.put(f"{path}/partitions", json=2)
    assert http.put(f"{path}-partition-0/properties", json={"a": "1"}).status_code == 204
    assert http.get(f"{path}-partition-0/properties").json() == {"a": "1"}
    assert http.get(f"{path}/properties").json() == http.get(f"{path}-partition-1/properties").json() == {}


def test_a_subscription_of_some_partitions_is_completed(http: httpx.Client, path: str) -> None:
    """1.2.1, 1.4.6: those that have it keep it where it is; it is refused where all have it."""
    http.put(f"{path}/partitions", json=2)
    told = {"ledgerId": -1, "entryId": -1, "properties": {"k": "mine"}}
    assert http.put(f"{path}-partition-1/subscription/s", json=told).status_code == 204
    assert http.put(f"{path}/subscription/s", json="earliest").status_code == 204
    assert http.get(f"{path}-partition-0/subscriptions").json() == ["s"]
    assert http.get(f"{path}-partition-1/subscription/s/properties").json() == {"k": "mine"}
    assert http.put(f"{path}/subscription/s", json="earliest").status_code == 409


def test_subscribing_over_http_makes_topics_where_using_them_does(http: httpx.Client) -> None:
    """1.1.7: plain ones, partitioned ones, and none where auto-creation is off."""
    setting, base = "/namespaces/public/made/autoTopicCreation", "/persistent/public/made"
    assert http.put("/namespaces/public/made").status_code == 204
    assert http.put(f"{base}/plain/subscription/s", json="earliest").status_code == 204
    assert http.get(f"{base}/plain/subscriptions").json() == ["s"]
    many = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    assert http.post(setting, json=many).status_code == 204
    assert http.put(f"{base}/many/subscription/s", json="earliest").status_code == 204
    assert http.get(f"{base}/many/partitions").json()["partitions"] == 2
    assert http.get(f"{base}/many-partition-1/subscriptions").json() == ["s"]
    assert http.post(setting, json={"allowAutoTopicCreation": False}).status_code == 204
    refused = http.put(f"{base}/none/subscription/s", json="earliest")
    assert (refused.status_code, "does not exist" in refused.json()["reason"]) == (412, True)


def test_resetting_needs_a_place(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """1.4.6: a word or an id; a request that lost its body passes over nothing."""
    publish(broker, topic, 3)
    http.put(f"{path}/subscription/s", json="earliest")
    for nothing in (b"", b"null", b'"nowhere"'):
        assert http.post(f"{path}/subscription/s/resetcursor", content=nothing).status_code == 400
        assert backlog(http, path) == 3
    assert http.post(f"{path}/subscription/s/resetcursor", json="latest").status_code == 204
    assert backlog(http, path) == 0
    assert http.post(f"{path}/subscription/s/resetcursor", json="earliest").status_code == 204
    assert backlog(http, path) == 3


def test_messages_are_peeked_at(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """I3.9: the n-th unacknowledged entry, plain, with what it says of itself in headers; nothing is taken."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1000, partition_key="k")
        metadata.properties.add(key="a", value="b")
        metadata.compression, metadata.uncompressed_size = ZLIB, 5  # type: ignore[assignment] # an enum of the proto
        client.send_entry(0, 7, seal_entry(metadata.SerializeToString(), bytes(compress(ZLIB, b"hello"))))
        where = client.next_command().send_receipt.message_id
    http.put(f"{path}/subscription/s", json="earliest")
    for found in (
        http.get(f"{path}/subscription/s/position/1"),
        http.get(f"{path}/ledger/{where.ledgerId}/entry/{where.entryId}"),
    ):
        assert (found.status_code, found.content) == (200, b"hello")
        assert found.headers["X-Pulsar-Message-ID"] == f"{where.ledgerId}:{where.entryId}"
        assert found.headers["X-Pulsar-publish-time"] == "1970-01-01T00:00:01.000Z"
        assert found.headers["X-Pulsar-PROPERTY"] == '{"a": "b"}'
        assert b"X-Pulsar-PROPERTY" in [name for name, _ in found.headers.raw]  # there are clients to whom that matters
        assert (found.headers["X-Pulsar-partition-key"], found.headers["X-Pulsar-sequence-id"]) == ("k", "7")
        assert (found.headers["X-Pulsar-compression"], found.headers["X-Pulsar-uncompressed-size"]) == ("ZLIB", "5")
        assert found.headers["X-Pulsar-Broker-Entry-METADATA-index"] == "0"
    assert backlog(http, path) == 1
    for nothing in ("subscription/s/position/2", "subscription/s/position/0", "ledger/999/entry/0"):
        assert http.get(f"{path}/{nothing}").status_code == 404
    assert http.get(f"{path}/subscription/nope/position/1").status_code == 404
    assert http.get(f"{path}/ledger/x/entry/0").status_code == 400


def test_what_an_entry_says_cannot_break_the_answer(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.2: times that no calendar knows, keys that are no header, payloads that are not what they say."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        metadata = MessageMetadata(producer_name="p\r\nX: 1", sequence_id=0, publish_time=2**62, partition_key="\x00é")
        client.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"x"))
        client.next_command()
        metadata.compression, metadata.uncompressed_size = ZLIB, 5  # type: ignore[assignment] # an enum of the proto
        client.send_entry(0, 1, seal_entry(metadata.SerializeToString(), b"nonsense"))
        client.next_command()
    http.put(f"{path}/subscription/s", json="earliest")
    first = http.get(f"{path}/subscription/s/position/1")
    assert (first.status_code, first.headers["X-Pulsar-publish-time"]) == (200, str(2**62))
    assert "X" not in first.headers
    assert http.get(f"{path}/subscription/s/position/2").json()["reason"]


def test_text_that_is_none_cannot_break_it_either(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """1.5: name, key and properties of an entry may be any bytes."""
    bad = b"\xff\xfe"
    metadata = b"\x0a\x02%b\x10\x00\x18\x01\x22\x08\x0a\x02%b\x12\x02%b\x32\x02%b" % (bad, bad, bad, bad)
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, seal_entry(metadata, b"x"))
        client.next_command()
    http.put(f"{path}/subscription/s", json="earliest")
    seen = http.get(f"{path}/subscription/s/position/1")
    assert (seen.status_code, seen.content) == (200, b"x")
    assert seen.headers["X-Pulsar-PROPERTY"] == r'{"\ufffd\ufffd": "\ufffd\ufffd"}'


def test_blanks_around_a_key_cannot_break_it_either(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """1.5: no header has any, so they are lost, as in Pulsar."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, partition_key=" k ")
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"x"))
        client.next_command()
    seen = http.get(f"{path}/examinemessage")
    assert (seen.status_code, seen.content, seen.headers["X-Pulsar-partition-key"]) == (200, b"x", "k")


def test_an_encrypted_message_is_shown_as_it_is(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """1.5: it was compressed before, so nobody here can decompress it; how it was encrypted is said as by Pulsar."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    metadata.compression, metadata.uncompressed_size = ZLIB, 10  # type: ignore[assignment] # an enum of the proto
    metadata.encryption_algo, metadata.encryption_param = "algo", b"\x00\x01"
    for name in ("k", "k2"):
        metadata.encryption_keys.add(key=name, value=b"v")
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        client.send_entry(0, 0, seal_entry(metadata.SerializeToString(), b"secret"))
        client.next_command()
    seen = http.get(f"{path}/examinemessage")
    assert (seen.status_code, seen.content) == (200, b"secret")
    said = seen.headers
    assert (said["X-Pulsar-Is-Encrypted"], said["X-Pulsar-compression"]) == ("true", "ZLIB")
    assert (said["X-Pulsar-encryption-algo"], said["X-Pulsar-Base64-encryption-param"]) == ("algo", "AAE=")
    assert said.get_list("X-Pulsar-Base64-encryption-keys") == ["CgFrEgF2", "CgJrMhIBdg=="]


def test_message_ids_are_found_by_time(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """1.4.6: the first one stored at or after it; behind the last one when there is none."""
    places = publish(broker, topic, 1)
    between_ms = later_ms()
    places += publish(broker, topic, 2)
    ledger, entry = places[1]
    assert http.get(f"{path}/messageid/{between_ms}").json() == {
        "ledgerId": ledger,
        "entryId": entry,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    assert http.get(f"{path}/messageid/{later_ms()}").json()["entryId"] == places[2][1] + 1
    assert http.get(f"{path}/lastMessageId").json()["entryId"] == places[2][1]


def test_what_needs_one_log_is_refused_on_a_partitioned_topic(http: httpx.Client, topic: str, path: str) -> None:
    """1.2.1: 405, as the base name holds no data; what means something on all partitions is done on all."""
    http.put(f"{path}/partitions", content="2")
    http.put(f"{path}/subscription/s", json="earliest")
    one = {"ledgerId": 1, "entryId": 1}
    assert http.post(f"{path}/subscription/s/skip/1").status_code == 405
    assert http.post(f"{path}/subscription/s/expireMessages", json=one).status_code == 405
    assert http.post(f"{path}/subscription/s/resetcursor", json=one).status_code == 405
    assert http.get(f"{path}/subscription/s/position/1").status_code == 405
    assert http.get(f"{path}/messageid/0").status_code == 405
    for everywhere in ("skip_all", "expireMessages/1", "resetcursor/0"):
        assert http.post(f"{path}/subscription/s/{everywhere}").status_code == 204
    assert http.get(f"{path}/stats").status_code == 404
    assert set(http.get(f"{path}/partitioned-internalStats").json()["partitions"]) == {
        f"{topic}-partition-{index}" for index in range(2)
    }
    assert http.delete(path).status_code == 409
    assert http.post(f"{path}x/partitions", content="3").status_code == 409


def test_new_partitions_have_the_subscriptions(
    broker: RunningBroker, http: httpx.Client, path: str, topic: str
) -> None:
    """1.2.2: growth gives every durable subscription of any partition a cursor at the beginning of the new ones."""
    http.put(f"{path}/partitions", content="2")
    http.put(f"{path}-partition-1/subscription/s", json="latest")
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(f"{topic}-partition-0"))
        assert http.post(f"{path}/partitions", content="3").status_code == 204
        must_succeed(client.open_producer(f"{topic}-partition-2", 1))
    publish(broker, f"{topic}-partition-2", 4)
    assert backlog(http, f"{path}-partition-2") == 4
    assert http.get(f"{path}/partitions").json()["partitions"] == 3


def test_a_topic_is_terminated(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """7.5 (I7.3): the answer is the id of the last message; nobody produces any more; it stays so."""
    places = publish(broker, topic, 3)
    for _ in range(2):
        ended = http.post(f"{path}/terminate")
        assert ended.status_code == 200
        assert (ended.json()["ledgerId"], ended.json()["entryId"]) == places[-1]
    with RawClient(broker.service_url) as client:
        assert client.open_producer(topic).type == BaseCommand.ERROR
    assert http.post(f"{path}x/terminate").status_code == 404


def test_partitions_are_terminated_together(http: httpx.Client, path: str) -> None:
    """7.5: by a path of its own, as in Pulsar; the plain one is refused."""
    http.put(f"{path}/partitions", content="2")
    assert http.post(f"{path}/terminate").status_code == 405
    assert sorted(http.post(f"{path}/terminate/partitions").json()) == ["0", "1"]


def test_statistics_tell_the_backlog_and_its_quotas(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.15, 7.3: bytes behind the slowest subscription, the age of its first message, and both limits."""
    publish(broker, topic, 3)
    http.put(f"{path}/subscription/s", json="earliest")
    http.post(f"{path}/backlogQuota", json={"limitSize": 1 << 30, "policy": "producer_request_hold"})
    stats = http.get(f"{path}/stats").json()
    assert 0 < stats["backlogSize"] <= stats["storageSize"]
    assert stats["subscriptions"]["s"]["backlogSize"] == stats["backlogSize"]
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (1 << 30, -1)
    assert 0 <= stats["oldestBacklogMessageAgeSeconds"] < 10**9  # published in 1970
    http.post(f"{path}/subscription/s/skip_all")
    assert http.get(f"{path}/stats").json()["oldestBacklogMessageAgeSeconds"] == -1


@pytest.mark.parametrize(("policy", "code"), [("producer_request_hold", 7), ("producer_exception", 8)])
def test_a_quota_stops_producers_over_the_wire(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str, policy: str, code: int
) -> None:
    """7.3: PRODUCER is answered with ProducerBlockedQuotaExceededError or ...Exception until the backlog is gone."""
    publish(broker, topic, 3)
    http.put(f"{path}/subscription/s", json="earliest")
    http.post(f"{path}/backlogQuota", json={"limitSize": 10, "policy": policy})
    with RawClient(broker.service_url) as client:
        assert client.open_producer(topic).error.error == code
        http.post(f"{path}/subscription/s/skip_all")
        must_succeed(client.open_producer(topic))


def test_topics_of_which_nothing_is_stored_have_paths_of_their_own(broker: RunningBroker, http: httpx.Client) -> None:
    """1.1.8, 1.2.1: create, list, look at, delete; the two domains do not see each other."""
    name = uuid.uuid4().hex
    path = f"/non-persistent/public/default/{name}"
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(f"non-persistent://public/default/{name}"))
        assert f"non-persistent://public/default/{name}" in http.get("/non-persistent/public/default").json()
        assert name not in http.get("/persistent/public/default").text
        assert len(http.get(f"{path}/stats").json()["publishers"]) == 1
        assert http.get(f"/persistent/public/default/{name}/stats").status_code == 404
        assert http.delete(f"{path}?force=true").status_code == 204
    assert http.put(f"{path}p/partitions", content="2").status_code == 204
    assert http.get(f"{path}p/partitions").json()["partitions"] == 2
    assert http.get("/non-persistent/public/default/partitioned").json() == [f"non-persistent://public/default/{name}p"]
    assert name not in http.get("/persistent/public/default/partitioned").text
    assert http.delete(f"{path}p/partitions").status_code == 204


def test_looking_makes_no_partitions(http: httpx.Client, path: str) -> None:
    """1.2.1: a partition comes into being when it is used, not when somebody asks about the topic or clears it."""
    assert http.put(f"{path}/partitions", content="5").status_code == 204
    assert http.get(f"{path}/subscriptions").json() == []
    stats = http.get(f"{path}/partitioned-stats").json()
    assert stats["metadata"] == {"partitions": 5, "deleted": False}
    assert (stats["msgInCounter"], len(stats["partitions"])) == (0, 5)
    assert http.post("/namespaces/public/default/clearBacklog").status_code == 204
    assert http.get(f"{path}/partitioned-internalStats").json() == {"metadata": stats["metadata"], "partitions": {}}
    assert http.put(f"{path}/subscription/s").status_code == 204
    assert len(http.get(f"{path}/partitioned-internalStats").json()["partitions"]) == 5


def test_a_topic_property_is_not_taken_for_what_the_broker_remembers(http: httpx.Client, path: str) -> None:
    """7.5, 1.7.4: the end of a topic and its epoch are kept among its properties; users may use the same names."""
    properties = {"pulsar.terminated": "abc", "pulsar.topic.epoch": "x", "a": "1", "\x1bpulsar.terminated": "y"}
    assert http.put(path, json=properties).status_code == 204
    assert http.post(f"{path}/terminate").status_code == 200
    assert http.put(f"{path}/unload").status_code == 204
    assert http.get(f"{path}/properties").json() == properties
    assert http.post(f"{path}/terminate").status_code == 200
    assert http.put(f"{path}-p/partitions", json={"partitions": 1, "properties": properties}).status_code == 204
    assert http.get(f"{path}-p/properties").json() == properties


def test_a_tenant_may_have_the_name_of_a_domain(http: httpx.Client) -> None:
    """1.1.3: only the beginning of a path says whether a topic is stored."""
    assert http.put("/tenants/non-persistent", json={"allowedClusters": ["standalone"]}).status_code == 204
    assert http.put("/namespaces/non-persistent/persistent").status_code == 204
    for domain in ("persistent", "non-persistent"):
        assert http.put(f"/{domain}/non-persistent/persistent/t").status_code == 204
        listed = http.get(f"/{domain}/non-persistent/persistent").json()
        assert listed == [f"{domain}://non-persistent/persistent/t"]


def test_a_topic_that_was_just_unloaded_can_be_had_once_it_is_looked_up(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """1.8, 3.7: under deduplication what is still being written has to be known first; the LOOKUP waits for it."""
    http.put(path)
    http.post(f"{path}/deduplicationEnabled", json=True)
    lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": topic, "request_id": 1})
    with RawClient(broker.service_url) as client:
        for number in range(20):
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1)
            must_succeed(client.open_producer(topic, number))
            client.send_entry(number, number, seal_entry(metadata.SerializeToString(), b"x"))
            client.next_command()
            http.put(f"{path}/unload")
            assert client.next_command().type == BaseCommand.CLOSE_PRODUCER
            assert client.ask(lookup).type == BaseCommand.LOOKUP_RESPONSE
            must_succeed(client.subscribe(topic, "s", number))
            http.put(f"{path}/unload")
            assert client.next_command().type == BaseCommand.CLOSE_CONSUMER
            assert client.ask(lookup).type == BaseCommand.LOOKUP_RESPONSE
