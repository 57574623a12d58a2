# SPDX-License-Identifier: Apache-2.0
"""Published holes of Apache Pulsar that are about rights, by status and words where an attack alone says too little.

``test_published_holes`` has the attacks, which a real Apache Pulsar meets, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from broker_core.testing.raw_client import RawClient, must_succeed
from broker_core.wire.entry import seal_entry
from broker_core.wire.proto.pulsar_api_pb2 import BaseCommand, MessageMetadata
from tests.server.rights_model import SUPERUSER
from tests.server.rights_world import DOMAINS, Answer, Http, Secured, Who, furnish, hello, secured

ENTRY: Final = seal_entry(
    MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString(), b"hello"
)
UNAUTHORIZED: Final = 4
ROOT: Final = Who(SUPERUSER)


@pytest.fixture(scope="module")
def world() -> Iterator[Secured]:
    """The grants of the matrix, and a message in ``plain`` and in each partition of ``parted``."""
    with secured() as world:
        furnish(world, "acme/ns", "acme/prefixed")
        with world.raw(ROOT) as client:
            for number, topic in enumerate(("plain", "parted-partition-0", "parted-partition-1")):
                for namespace in ("ns", "prefixed"):
                    publish(client, f"persistent://acme/{namespace}/{topic}", 2 * number + (namespace == "ns"))
        yield world


def publish(client: RawClient, topic: str, producer_id: int) -> None:
    must_succeed(client.open_producer(topic, producer_id))
    client.send_entry(producer_id, 0, ENTRY)
    assert client.next_command().type == BaseCommand.SEND_RECEIPT


@pytest.fixture
def root(world: Secured) -> Iterator[Http]:
    """The superuser."""
    http = world.http(ROOT)
    yield http
    http.close()


def ask(world: Secured, role: str, method: str, path: str, body: object = None) -> Answer:
    """The answer to one request of a role."""
    http = world.http(Who(role))
    try:
        return http.ask(method, path, body)
    finally:
        http.close()


def test_cve_2021_41571_an_entry_is_read_from_its_own_topic_only(world: Secured, root: Http) -> None:
    """By the ids of another topic's entry its message could be read by everybody who may read anything."""
    ledgers = {}
    for topic in ("plain", "parted-partition-0"):
        stats = root.ask("GET", f"/admin/v2/persistent/acme/ns/{topic}/internalStats").content
        ledgers[topic] = stats["ledgers"][0]["ledgerId"]
    base = "/admin/v2/persistent/acme/ns"
    assert ask(world, "cons-ns", "GET", f"{base}/plain/ledger/{ledgers['plain']}/entry/0").status == 200
    assert ask(world, "cons-ns", "GET", f"{base}/plain/ledger/{ledgers['parted-partition-0']}/entry/0").status == 404
    assert ask(world, "prod-ns", "GET", f"{base}/plain/ledger/{ledgers['plain']}/entry/0").status == 401


def test_cve_2023_30428_a_header_that_comes_twice_is_refused(world: Secured) -> None:
    """Two readers may take different ones: a proxy's own, and that of its client behind it."""
    http = world.http(Who("proxy-root"))
    connection = http.connection
    connection.putrequest("GET", "/admin/v2/tenants")
    for name, value in (
        *http.headers.items(),
        ("X-Original-Principal", SUPERUSER),
        ("X-Original-Principal", "nobody"),
    ):
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.getresponse().status == 400
    http.close()


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("topic", ["__change_events", "__change_events-partition-0", "__x"])
def test_cve_2023_30428_topics_of_the_broker_take_no_messages_of_clients(
    world: Secured, domain: str, topic: str
) -> None:
    """Not even of the administrator of the tenant."""
    for role in ("prod-ns", "boss"):
        with world.raw(Who(role)) as client:
            answer = client.open_producer(f"{domain}://acme/ns/{topic}", 1)
            assert (answer.type, answer.error.error) == (BaseCommand.ERROR, UNAUTHORIZED)


def test_cve_2026_105938_a_subscription_without_the_prefix_is_refused_with_a_word_of_it(
    world: Secured, root: Http
) -> None:
    """In the mode in which the name of a subscription must begin with the role."""
    assert root.ask("POST", "/admin/v2/namespaces/acme/prefixed/subscriptionAuthMode", "Prefix").status == 204
    with world.raw(Who("cons-ns")) as client:
        answer = client.subscribe("persistent://acme/prefixed/plain", "open")
        assert answer.error.message == (
            "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, "
            "like cons-ns-xxxx for topic: persistent://acme/prefixed/plain"
        )
        must_succeed(client.subscribe("persistent://acme/prefixed/plain", "cons-ns-1"))


@pytest.mark.parametrize("topic", ["plain", "missing", "missing-partition-3"])
def test_a_refusal_does_not_tell_what_exists(world: Secured, topic: str) -> None:
    """Rights are checked before anything is looked up: of a tenant that is not there as of one that is."""
    texts = set()
    for place in ("acme/ns", "acme/missing", "missing/ns"):
        answer = ask(world, "nobody", "GET", f"/admin/v2/persistent/{place}/{topic}/stats")
        texts.add((answer.status, answer.reason.partition(" on topic ")[0]))
        with world.raw(Who("nobody")) as client:
            lookup = BaseCommand(
                type=BaseCommand.LOOKUP, lookupTopic={"topic": f"persistent://{place}/{topic}", "request_id": 1}
            )
            response = client.ask(lookup).lookupTopicResponse
            assert (response.error, response.message) == (UNAUTHORIZED, "Client is not authorized to Lookup")
    assert texts == {(401, "Unauthorized to validateTopicOperation for operation [GET_STATS]")}


def test_a_proxy_must_name_its_client_and_nobody_else_may(world: Secured) -> None:
    """By CONNECT: the connection ends with the word of it."""
    for who in (Who("proxy-root"), Who("proxy-root", "proxy"), Who("nobody", SUPERUSER)):
        with RawClient(world.server.service_url, connect=False) as client:
            answer = client.ask(hello(who))
            assert (answer.error.error, answer.error.message) == (UNAUTHORIZED, "Invalid roles.")
            assert client.ended_by_broker()
