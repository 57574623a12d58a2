# SPDX-License-Identifier: Apache-2.0
"""The admin REST: Pulsar's paths, JSON and status codes, and that nothing a client sends becomes a 500."""

from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from broker_core import __version__
from broker_core.client import Client
from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.testing.running_broker import RunningBroker
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.passing_time import later_ms

LATEST = {"ledgerId": 2**63 - 1, "entryId": 2**63 - 1, "partitionIndex": -1}


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    """A client of the admin REST."""
    with httpx.Client(base_url=broker.http_url, timeout=60) as client:
        yield client


@pytest.fixture
def path(topic: str) -> str:
    """The admin path of the topic of this test."""
    return "/admin/v2/" + topic.replace("://", "/")


def publish(broker: RunningBroker, topic: str, count: int) -> list[tuple[int, int]]:
    """Send some messages; where they are."""
    places = []
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        for number in range(count):
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1000 + number)
            client.send_entry(0, number, seal_entry(metadata.SerializeToString(), b"x"))
            where = client.next_command().send_receipt.message_id
            places.append((where.ledgerId, where.entryId))
    return places


def reason(answer: httpx.Response) -> str:
    """The text of a refusal."""
    text: str = answer.json()["reason"]
    assert text
    return text


# -- brokers and lookup


def test_health_is_ok(http: httpx.Client) -> None:
    """Load balancers and people ask this first."""
    answer = http.get("/admin/v2/brokers/health")
    assert (answer.status_code, answer.text) == (200, "ok")


def test_lookup_names_this_broker_with_all_four_fields(broker: RunningBroker, http: httpx.Client, topic: str) -> None:
    """The C++ client needs the TLS fields to be there."""
    answer = http.get("/lookup/v2/topic/" + topic.replace("://", "/")).json()
    assert answer == {
        "brokerUrl": broker.service_url,
        "brokerUrlTls": "",
        "httpUrl": broker.http_url,
        "httpUrlTls": "",
    }
    assert http.get("/lookup/v2/topic/persistent/public/nowhere/t").status_code == 404


def test_there_is_one_broker(broker: RunningBroker, http: httpx.Client) -> None:
    """A client that asks for the brokers, or for the leader, is told of this one."""
    name = broker.http_url.removeprefix("http://")
    assert http.get("/admin/v2/brokers").json() == http.get("/admin/v2/brokers/standalone").json() == [name]
    assert http.get("/admin/v2/brokers/nowhere").status_code == 404
    assert http.get("/admin/v2/brokers/leaderBroker").json() == {"serviceUrl": broker.http_url, "brokerId": name}
    assert http.get("/admin/v2/brokers/ready").text == "ok"
    assert http.get("/admin/v2/brokers/version").text == __version__


# -- tenants and namespaces


def test_tenants_are_created_once_and_listed(http: httpx.Client) -> None:
    """204, then 409."""
    assert "public" in http.get("/admin/v2/tenants").json()
    config = {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}
    assert http.put("/admin/v2/tenants/acme", json=config).status_code == 204
    assert http.put("/admin/v2/tenants/acme", json=config).status_code == 409
    assert "acme" in http.get("/admin/v2/tenants").json()
    assert http.get("/admin/v2/tenants/acme").json() == config
    assert http.get("/admin/v2/tenants/nobody").status_code == 404


def test_namespaces_are_created_once_and_hold_topics(broker: RunningBroker, http: httpx.Client) -> None:
    """1.1.5: tenant, namespace, topic; each must exist before the next."""
    http.put("/admin/v2/tenants/firm", json={"allowedClusters": ["standalone"]})
    assert http.put("/admin/v2/namespaces/firm/one").status_code == 204
    assert http.put("/admin/v2/namespaces/firm/one").status_code == 409
    assert http.put("/admin/v2/namespaces/nofirm/one").status_code == 404
    assert http.get("/admin/v2/namespaces/firm").json() == ["firm/one"]
    assert http.get("/admin/v2/namespaces/firm/one").status_code == 200
    assert http.get("/admin/v2/namespaces/firm/two").status_code == 404
    publish(broker, "persistent://firm/one/t", 1)
    assert http.get("/admin/v2/namespaces/firm/one/topics?mode=PERSISTENT").json() == ["persistent://firm/one/t"]
    assert http.get("/admin/v2/namespaces/firm/one/topics?mode=NON_PERSISTENT").json() == []
    assert http.get("/admin/v2/namespaces/firm/two/topics").status_code == 404


def test_a_topic_of_an_unknown_namespace_is_refused(broker: RunningBroker) -> None:
    """Auto-creation makes topics, not namespaces."""
    with RawClient(broker.service_url) as client:
        assert client.open_producer("persistent://no/where/t").type == BaseCommand.ERROR


def test_clusters_are_this_one(http: httpx.Client) -> None:
    """clusterName of the settings."""
    assert http.get("/admin/v2/clusters").json() == ["standalone"]


# -- topics


def test_a_topic_is_created_listed_and_deleted(http: httpx.Client, topic: str, path: str) -> None:
    """204, 409, 204, 404."""
    assert http.put(path, content="null").status_code == 204
    assert http.put(path, json={"owner": "me"}).status_code == 409
    assert topic in http.get("/admin/v2/persistent/public/default").json()
    assert http.get(f"{path}/partitions").json()["partitions"] == 0
    assert http.delete(path).status_code == 204
    assert http.delete(path).status_code == 404
    assert topic not in http.get("/admin/v2/persistent/public/default").json()


def test_partitions_are_created_grown_and_deleted(http: httpx.Client, topic: str, path: str) -> None:
    """1.2: the count can only grow; bodies come in two forms."""
    assert http.put(f"{path}/partitions", content="2").status_code == 204
    assert http.put(f"{path}/partitions", content="2").status_code == 409
    assert http.get(f"{path}/partitions").json()["partitions"] == 2
    assert topic in http.get("/admin/v2/persistent/public/default/partitioned").json()
    assert f"{topic}-partition-1" in http.get("/admin/v2/persistent/public/default").json()
    assert http.post(f"{path}/partitions", content="4").status_code == 204
    assert http.get(f"{path}/partitions").json()["partitions"] == 4
    assert http.post(f"{path}/partitions", content="3").status_code == 422
    assert http.delete(f"{path}/partitions").status_code == 204
    assert http.delete(f"{path}/partitions").status_code == 404
    assert http.put(f"{path}/partitions", json={"properties": {}, "partitions": 3}).status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 3, "deleted": False}
    properties = {"owner": "me"}
    assert http.put(f"{path}/properties", json=properties).status_code == 204
    assert http.get(f"{path}/partitions").json() == {"partitions": 3, "properties": properties, "deleted": False}


@pytest.mark.parametrize(
    "body", ["0", "-1", "10001", "true", "1.5", '"3x"', "{}", "[1]", "", "null", "{", "[" * 10_000]
)
def test_impossible_partition_counts_are_refused(http: httpx.Client, path: str, body: str) -> None:
    """Also those that are no numbers, and JSON that is none."""
    answer = http.put(f"{path}/partitions", content=body)
    assert answer.status_code in (400, 406)
    reason(answer)


def test_a_topic_in_use_is_deleted_only_by_force(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """412; by force its clients are told to go."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        assert http.delete(path).status_code == 412
        assert http.delete(path, params={"force": "true"}).status_code == 204
        assert client.next_command().type == BaseCommand.CLOSE_PRODUCER


def test_unload_sends_clients_away_and_keeps_the_data(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """204; they come back and find everything."""
    publish(broker, topic, 3)
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "s", permits=10))
        for _ in range(3):
            client.next_frame()
        assert http.put(f"{path}/unload").status_code == 204
        assert client.next_command().type == BaseCommand.CLOSE_CONSUMER
        must_succeed(client.subscribe(topic, "s", permits=10))
        assert client.next_command().type == BaseCommand.MESSAGE


def test_statistics_have_the_names_that_tools_read(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """Counters of the topic, its producers, subscriptions and consumers."""
    publish(broker, topic, 5)
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic, name="stat"))
        must_succeed(client.subscribe(topic, "s", permits=3))
        for _ in range(3):
            client.next_frame()
        stats = http.get(f"{path}/stats").json()
    assert stats["msgInCounter"] == 5
    assert stats["storageSize"] > 0
    assert [publisher["producerName"] for publisher in stats["publishers"]] == ["stat"]
    subscription = stats["subscriptions"]["s"]
    assert subscription["msgBacklog"] == 5
    assert subscription["type"] == "Exclusive"
    (consumer,) = subscription["consumers"]
    assert consumer["unackedMessages"] in (0, 3)
    assert consumer["clientVersion"] == "raw"
    assert consumer["address"].startswith("127.0.0.1:")


def test_internal_statistics_name_ledgers_and_cursors(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """Positions as ledger:entry."""
    places = publish(broker, topic, 3)
    http.put(f"{path}/subscription/s")
    internal = http.get(f"{path}/internalStats").json()
    ledger, entry = places[-1]
    assert internal["lastConfirmedEntry"] == f"{ledger}:{entry}"
    assert internal["numberOfEntries"] == 3
    assert internal["ledgers"][-1]["ledgerId"] == ledger
    assert internal["cursors"]["s"]["markDeletePosition"] == f"{ledger}:{entry}"
    assert internal["cursors"]["s"]["messagesConsumedCounter"] == 3
    http.post(f"{path}/subscription/s/resetcursor/0")
    assert http.get(f"{path}/internalStats").json()["cursors"]["s"]["messagesConsumedCounter"] == 0


def test_internal_statistics_name_cursors_of_readers(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """7.15: as in Apache Pulsar 4.2.4, while the reader is connected."""
    publish(broker, topic, 3)
    with Client(broker.service_url) as client, client.create_reader(topic):
        (name,) = http.get(f"{path}/stats").json()["subscriptions"]
        assert list(http.get(f"{path}/internalStats").json()["cursors"]) == [name]
    assert http.get(f"{path}/internalStats").json()["cursors"] == {}


def test_what_was_added_is_counted_in_entries(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """As in Pulsar: a batch is one."""
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, num_messages_in_batch=10)
    with RawClient(broker.service_url) as client:
        must_succeed(client.open_producer(topic))
        for number in range(2):
            client.send_entry(0, number, seal_entry(metadata.SerializeToString(), bytes(100)), messages=10)
            assert client.next_command().type == BaseCommand.SEND_RECEIPT
    assert http.get(f"{path}/internalStats").json()["entriesAddedCounter"] == 2


def test_statistics_of_partitions_are_added_up(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """Numbers are summed, subscriptions merged by name; the parts are there if wanted."""
    http.put(f"{path}/partitions", content="3")
    http.put(f"{path}/subscription/s", json="earliest")
    for partition in range(3):
        publish(broker, f"{topic}-partition-{partition}", partition + 1)
    stats = http.get(f"{path}/partitioned-stats").json()
    assert stats["metadata"] == {"partitions": 3, "deleted": False}
    assert stats["msgInCounter"] == 6
    assert stats["subscriptions"]["s"]["msgBacklog"] == 6
    assert stats["partitions"][f"{topic}-partition-2"]["msgInCounter"] == 3
    assert http.get(f"{path}/partitioned-stats?perPartition=false").json()["partitions"] == {}
    assert stats["subscriptions"]["s"]["type"] == "None"
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(f"{topic}-partition-1", "s"))
        stats = http.get(f"{path}/partitioned-stats").json()
        assert stats["subscriptions"]["s"]["type"] == "Exclusive"


def test_what_does_not_exist_is_404(http: httpx.Client, path: str) -> None:
    """Asking must not create."""
    for suffix in ("/stats", "/internalStats", "/partitioned-stats", "/partitions", "/subscriptions"):
        answer = http.get(path + suffix)
        assert answer.status_code == 404, suffix
        assert "does not exist" in reason(answer)
    assert http.delete(f"{path}/subscription/s").status_code == 404
    assert http.get("/admin/v2/persistent/no/where").status_code == 404


# -- subscriptions


@pytest.mark.parametrize(("body", "backlog"), [("", 0), ("null", 0), ('"latest"', 0), ('"earliest"', 3)])
def test_a_subscription_is_created_at_a_word(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str, body: str, backlog: int
) -> None:
    """Latest unless said otherwise."""
    publish(broker, topic, 3)
    assert http.put(f"{path}/subscription/s", content=body).status_code == 204
    assert http.put(f"{path}/subscription/s", content=body).status_code == 409
    assert http.get(f"{path}/subscriptions").json() == ["s"]
    assert http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"] == backlog


def test_a_subscription_is_created_at_a_message_id(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """As the admin clients write ids; latest is the largest number."""
    places = publish(broker, topic, 5)
    ledger, entry = places[2]
    assert http.put(f"{path}/subscription/a", json={"ledgerId": ledger, "entryId": entry}).status_code == 204
    assert http.put(f"{path}/subscription/b", json=LATEST).status_code == 204
    subscriptions = http.get(f"{path}/stats").json()["subscriptions"]
    assert {name: each["msgBacklog"] for name, each in subscriptions.items()} == {"a": 3, "b": 0}


def test_a_subscription_is_deleted_unless_consumers_are_connected(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str
) -> None:
    """412, or by force."""
    with RawClient(broker.service_url) as client:
        must_succeed(client.subscribe(topic, "s"))
        assert http.delete(f"{path}/subscription/s").status_code == 412
        assert http.delete(f"{path}/subscription/s?force=true").status_code == 204
        assert client.next_command().type == BaseCommand.CLOSE_CONSUMER
    assert http.get(f"{path}/subscriptions").json() == []


def test_a_cursor_is_reset_to_times_and_ids(broker: RunningBroker, http: httpx.Client, topic: str, path: str) -> None:
    """1.4.6: inclusive by default, exclusive if asked."""
    places = publish(broker, topic, 3)
    between_ms = later_ms()
    places += publish(broker, topic, 2)
    http.put(f"{path}/subscription/s", json="earliest")

    def backlog() -> int:
        number: int = http.get(f"{path}/stats").json()["subscriptions"]["s"]["msgBacklog"]
        return number

    assert http.post(f"{path}/subscription/s/resetcursor/{between_ms}").status_code == 204
    assert backlog() == 2
    where = {"ledgerId": places[1][0], "entryId": places[1][1]}
    assert http.post(f"{path}/subscription/s/resetcursor", json=where).status_code == 204
    assert backlog() == 4
    assert http.post(f"{path}/subscription/s/resetcursor", json=where | {"excluded": True}).status_code == 204
    assert backlog() == 3
    assert http.post(f"{path}/subscription/s/resetcursor", json=LATEST).status_code == 204
    assert backlog() == 0
    assert http.post(f"{path}/subscription/s/resetcursor/yesterday").status_code == 400
    assert http.post(f"{path}/subscription/other/resetcursor/0").status_code == 404


# -- protection


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::", "localhost@evil", "10.0.0.1:80"])
def test_a_foreign_host_name_is_refused(http: httpx.Client, host: str) -> None:
    """DNS rebinding: a page keeps its own name in Host."""
    assert http.get("/admin/v2/tenants", headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:1234", "[::1]:80", "LOCALHOST"])
def test_names_of_the_loopback_address_are_served(http: httpx.Client, host: str) -> None:
    """Whatever port a tunnel or a forward uses."""
    assert http.get("/admin/v2/tenants", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://["},
        {"Origin": "http://[localhost]"},
        {"Origin": "http://localhost:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_request_from_a_page_of_another_site_is_refused(
    http: httpx.Client, path: str, headers: dict[str, str]
) -> None:
    """CSRF: also what needs no preflight."""
    answer = http.put(path, headers=headers, content="null")
    assert answer.status_code == 403
    reason(answer)


@pytest.mark.parametrize("name", ["Origin", "Sec-Fetch-Site", "Host", "Content-Encoding"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_header_that_a_check_relies_on_may_be_there_once(
    broker: RunningBroker, http: httpx.Client, name: str, swapped: bool
) -> None:
    """CSRF: of two the check would go by the first, and another reader of the request by the second."""
    address = http.base_url.netloc.decode()
    good = {"Origin": broker.http_url, "Sec-Fetch-Site": "none", "Host": address}
    values = [good.get(name, "identity"), "http://evil.example"]
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.putrequest("GET", "/admin/v2/tenants", skip_host=name == "Host")
        for value in reversed(values) if swapped else values:
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 400


def test_the_log_names_the_peer_and_not_whom_it_says_it_forwards(tmp_path: Path) -> None:
    """Anybody may write the header, and no proxy is in front of a port for this machine alone.

    A broker that has refused a lot, as that of the other tests, only counts what it refuses.
    """
    path = "/admin/v2/written-by-a-liar"
    with RunningBroker(tmp_path / "data") as broker:
        httpx.get(broker.http_url + path, headers={"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"})
        (line,) = [line for line in broker.stderr.splitlines() if f"path={path}" in line]
    assert "peer=127.0.0.1:" in line


def test_a_page_of_our_own_may_ask(broker: RunningBroker, http: httpx.Client) -> None:
    """Same origin."""
    assert http.get("/admin/v2/tenants", headers={"Origin": broker.http_url}).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        "a%2Fb",
        "%00",
        "a%0Ab",
        "%20",
        "%ff%fe",
        "x" * 2000,
        "%F0%9F%98%80" * 300,
    ],
)
def test_bad_topic_names_are_refused_with_a_reason(http: httpx.Client, name: str) -> None:
    """Row 37: no name reaches a path on the disk."""
    for method in ("PUT", "DELETE"):
        answer = http.request(method, f"/admin/v2/persistent/public/default/{name}")
        assert answer.status_code == 400 if name == "%ff%fe" else answer.status_code in (404, 412), answer.text
        reason(answer)


def test_an_encoded_slash_stays_part_of_the_name(http: httpx.Client) -> None:
    """1.1.2: a slash inside the local part must be percent-encoded; in a path it is so twice."""
    assert http.put("/admin/v2/persistent/public/default/dir%252Fname", content="null").status_code == 204
    assert "persistent://public/default/dir%2Fname" in http.get("/admin/v2/persistent/public/default").json()


def test_names_that_look_like_paths_are_only_names(http: httpx.Client) -> None:
    """Files are named by numbers."""
    for name in ("..%2ex", "....", "-", "~", "CON", "%E2%80%AEabc"):
        assert http.put(f"/admin/v2/persistent/public/default/{name}", content="null").status_code in (204, 412)


def test_a_large_body_is_refused_before_it_is_read(http: httpx.Client, path: str) -> None:
    """Stated or not stated."""
    assert http.put(path, content=b"x" * (2 * 1024 * 1024)).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b" " * 65_536

    assert http.put(path, content=endless()).status_code == 413


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("GET", "/"),
        ("GET", "/admin"),
        ("GET", "/admin/v2/persistent/a"),
        ("GET", "/admin/v2/persistent/a/b/c/d/e"),
        ("PATCH", "/admin/v2/tenants"),
        ("DELETE", "/admin/v2/tenants"),
        ("TRACE", "/admin/v2/tenants"),
        ("GET", "/admin/v2/../../etc/passwd"),
        ("GET", "/%2e%2e/%2e%2e/etc/passwd"),
    ],
)
def test_unknown_paths_and_methods_are_4xx_with_a_reason(http: httpx.Client, method: str, where: str) -> None:
    """Never a 500, never a page of HTML."""
    answer = http.request(method, where)
    assert answer.status_code in (404, 405)
    reason(answer)


def test_an_error_says_what_there_is_instead(http: httpx.Client) -> None:
    """The page that lists the paths, and, as HTTP asks for, the methods of a path."""
    assert reason(http.get("/nothing")) == "there is nothing at /nothing; docs/admin.md lists the paths"
    answer = http.put("/admin/v2/clusters/standalone/peers")
    assert answer.headers["Allow"] == "GET, HEAD, POST"
    assert reason(answer) == "PUT is not supported for /admin/v2/clusters/standalone/peers; it takes GET, HEAD, POST"


@pytest.mark.parametrize(
    "body",
    ["{", "[]", "1", '"x"', '{"ledgerId": "a"}', '{"ledgerId": 1}', '{"ledgerId": 1e99, "entryId": 0}', "[" * 10_000],
)
def test_bodies_that_make_no_sense_are_400(
    broker: RunningBroker, http: httpx.Client, topic: str, path: str, body: str
) -> None:
    """Everything is checked against a type."""
    publish(broker, topic, 1)
    answer = http.put(f"{path}/subscription/s", content=body)
    assert answer.status_code == 400
    reason(answer)


def test_a_plus_in_a_name_in_a_path_is_a_blank(http: httpx.Client, path: str) -> None:
    """1.1: as Pulsar's admin clients write it; elsewhere in a path it is a plus, as for Apache Pulsar."""
    for written in ("a+b", "a%2Bb"):
        assert http.put(f"{path}{written}").status_code == 204
    for written in ("s+1", "s%252B1"):
        assert http.put(f"{path}a%20b/subscription/{written}", content='"earliest"').status_code == 204
    assert http.get(f"{path}a%2Bb/subscriptions").json() == []
    assert http.get(f"{path}a%20b/subscriptions").json() == ["s 1", "s+1"]
    assert http.put("/admin/v2/namespaces/public/default/property/k+1/v+1").status_code == 204
    assert http.get("/admin/v2/namespaces/public/default/property/k%2B1").text == "v+1"
