# SPDX-License-Identifier: Apache-2.0
"""Grants by the admin REST: kept, shown, replaced and taken back, whether or not anybody checks them."""

from __future__ import annotations

import uuid

import httpx
import pytest

from broker_core.base.settings import Settings
from broker_core.testing.running_broker import RunningBroker
from broker_core.testing.sim_disk import SimDisk
from tests.server.server_thread import ServerThread


@pytest.fixture
def namespace(http: httpx.Client) -> str:
    """A namespace of the test's own."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    assert http.put(f"/namespaces/{name}").status_code == 204
    return name


@pytest.fixture
def place(namespace: str) -> str:
    """Its path in the admin REST."""
    return f"/namespaces/{namespace}"


def granted(http: httpx.Client, path: str) -> dict[str, list[str]]:
    answer = http.get(f"{path}/permissions")
    assert answer.status_code == 200
    found: dict[str, list[str]] = answer.json()
    return found


def test_a_grant_on_a_namespace_replaces_the_one_before(http: httpx.Client, place: str) -> None:
    """1.1.5: as in Pulsar the actions of a role are a set that is set as a whole."""
    assert granted(http, place) == {}
    assert http.post(f"{place}/permissions/app", json=["produce", "consume", "produce"]).status_code == 204
    assert http.post(f"{place}/permissions/job", json=["functions"]).status_code == 204
    assert granted(http, place) == {"app": ["produce", "consume"], "job": ["functions"]}
    assert http.post(f"{place}/permissions/app", json=["consume"]).status_code == 204
    assert granted(http, place) == {"app": ["consume"], "job": ["functions"]}
    for _ in range(2):  # to take back what there is not is no mistake
        assert http.delete(f"{place}/permissions/app").status_code == 204
    assert granted(http, place) == {"job": ["functions"]}


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_topic_shows_what_roles_have_on_it(http: httpx.Client, namespace: str, place: str, domain: str) -> None:
    """1.1.5: the grants of its namespace, its own, and those of the topic that it is a partition of."""
    topic = f"/{domain}/{namespace}/t"
    assert http.post(f"{place}/permissions/app", json=["consume"]).status_code == 204
    assert http.post(f"{topic}/permissions/app", json=["produce"]).status_code == 204
    assert http.post(f"{topic}/permissions/job", json=["produce"]).status_code == 204
    assert granted(http, topic) == {"app": ["produce", "consume"], "job": ["produce"]}
    assert granted(http, f"{topic}-partition-7") == granted(http, topic)
    assert granted(http, f"/{domain}/{namespace}/other") == {"app": ["consume"]}
    shown = http.get(place).json()["auth_policies"]
    assert shown["destination_auth"] == {f"{domain}://{namespace}/t": {"app": ["produce"], "job": ["produce"]}}
    assert http.delete(f"{topic}/permissions/app").status_code == 204
    assert granted(http, topic) == {"app": ["consume"], "job": ["produce"]}


def test_taking_from_a_topic_leaves_the_grants_of_its_namespace(http: httpx.Client, namespace: str, place: str) -> None:
    """As in Pulsar: 204, whether the topic had any."""
    assert http.post(f"{place}/permissions/app", json=["consume"]).status_code == 204
    assert http.delete(f"/persistent/{namespace}/t/permissions/app").status_code == 204
    assert granted(http, f"/persistent/{namespace}/t") == {"app": ["consume"]}


def test_taking_a_grant_from_a_topic_takes_it_from_its_partitions(http: httpx.Client, namespace: str) -> None:
    """And from no other topic, whatever its name begins with."""
    topic = f"/persistent/{namespace}/t"
    for name in (topic, f"{topic}-partition-0", f"{topic}-partition-x", f"{topic}2"):
        assert http.post(f"{name}/permissions/app", json=["produce"]).status_code == 204
    assert http.delete(f"{topic}/permissions/app").status_code == 204
    left = http.get(f"/namespaces/{namespace}").json()["auth_policies"]["destination_auth"]
    assert sorted(left) == [f"persistent://{namespace}/t-partition-x", f"persistent://{namespace}/t2"]


@pytest.mark.parametrize("form", ["permissions/s", "permissions/subscription/s"])
def test_a_subscription_has_roles_of_its_own(http: httpx.Client, place: str, form: str) -> None:
    """The POST replaces them; the DELETE has two forms, that of Pulsar's client and one like the POST's."""
    path = f"{place}/permissions/subscription"
    assert http.get(path).json() == {}
    assert http.post(f"{path}/s", json=["app", "job", "app"]).status_code == 204
    assert http.get(path).json() == {"s": ["app", "job"]}
    assert http.delete(f"{place}/{form}/app").status_code == 204
    assert http.get(path).json() == {"s": ["job"]}
    assert http.delete(f"{place}/{form}/job").status_code == 204
    assert http.get(path).json() == {}
    assert http.delete(f"{place}/{form}/job").status_code == 404


def test_the_mode_of_subscriptions_is_kept(http: httpx.Client, place: str) -> None:
    """Under the name of the policy, and in the object of the namespace."""
    path = f"{place}/subscriptionAuthMode"
    assert http.get(path).json() == "None"
    assert http.post(path, json="Prefix").status_code == 204
    assert (http.get(path).json(), http.get(place).json()["subscription_auth_mode"]) == ("Prefix", "Prefix")
    assert http.post(path, json="prefix").status_code == 400
    assert http.post(path, json="None").status_code == 204
    assert http.get(path).json() == "None"
    assert http.post(path, json="Prefix").status_code == 204
    assert http.delete(path).status_code == 204
    assert http.get(path).json() == "None"


@pytest.mark.parametrize("body", [None, "produce", ["fly"], {"produce": True}, [1]])
def test_an_action_that_there_is_not_is_refused(http: httpx.Client, namespace: str, place: str, body: object) -> None:
    """400, and nothing is granted."""
    for path in (place, f"/persistent/{namespace}/t"):
        assert http.post(f"{path}/permissions/app", json=body).status_code == 400
        assert granted(http, path) == {}


@pytest.mark.parametrize("role", ["app*", "*", "*app", "a*p", "%09", "%20", "x" * 1025, "%E2%80%AE"])
def test_a_name_that_would_match_nobody_is_refused(http: httpx.Client, namespace: str, place: str, role: str) -> None:
    """Stored in silence, a star would be taken for a wildcard, which it is not by default."""
    for path in (place, f"/persistent/{namespace}/t"):
        assert http.post(f"{path}/permissions/{role}", json=["produce"]).status_code == 412
        assert granted(http, path) == {}


def test_a_star_in_any_other_place_is_refused_as_well(http: httpx.Client, place: str) -> None:
    """The roles of a subscription, and the object by which a namespace is made."""
    assert http.post(f"{place}/permissions/subscription/s", json=["app", "a*"]).status_code == 412
    assert http.get(f"{place}/permissions/subscription").json() == {}
    name = f"public/n{uuid.uuid4().hex[:8]}"
    for grants in (
        {"namespace_auth": {"a*": ["produce"]}},
        {"destination_auth": {f"persistent://{name}/t": {"a*": ["produce"]}}},
        {"subscription_auth_roles": {"s": ["a*"]}},
    ):
        assert http.put(f"/namespaces/{name}", json={"auth_policies": grants}).status_code == 412
    assert http.get(f"/namespaces/{name}").status_code == 404


def test_a_star_is_granted_where_wildcards_are_on() -> None:
    """authorizationAllowWildcardsMatching."""
    settings = Settings(authorization_allow_wildcards_matching=True)
    with ServerThread(SimDisk(), settings) as server, httpx.Client(base_url=f"{server.http_url}/admin/v2") as http:
        assert http.post("/namespaces/public/default/permissions/app*", json=["produce"]).status_code == 204
        assert granted(http, "/namespaces/public/default") == {"app*": ["produce"]}


def test_a_namespace_is_made_with_its_grants(http: httpx.Client) -> None:
    """What was shown of one makes another."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    grants = {
        "namespace_auth": {"app": ["produce"]},
        "destination_auth": {f"persistent://{name}/t": {"job": ["consume"]}},
        "subscription_auth_roles": {"s": ["app"]},
    }
    asked = {"auth_policies": grants, "subscription_auth_mode": "Prefix"}
    assert http.put(f"/namespaces/{name}", json=asked).status_code == 204
    assert asked.items() <= http.get(f"/namespaces/{name}").json().items()
    assert (
        http.put(f"/namespaces/{name}x", json={"auth_policies": {"namespace_auth": {"app": ["x"]}}}).status_code == 400
    )
    no_topic = {"destination_auth": {"persistent://public": {"app": ["produce"]}}}
    assert http.put(f"/namespaces/{name}x", json={"auth_policies": no_topic}).status_code == 412
    assert http.get(f"/namespaces/{name}x").status_code == 404


def test_a_namespace_has_no_more_grants_than_can_be_kept(http: httpx.Client) -> None:
    """They are read and written as a whole."""
    name = f"public/n{uuid.uuid4().hex[:8]}"
    many = {f"r{number}": ["produce"] for number in range(10_001)}
    answer = http.put(f"/namespaces/{name}", json={"auth_policies": {"namespace_auth": many}})
    assert (answer.status_code, "at most 10000 grants" in answer.json()["reason"]) == (400, True)


def test_there_are_no_grants_where_there_is_no_namespace(http: httpx.Client) -> None:
    """404 for every form."""
    namespace, topic = "/namespaces/public/nowhere", "/persistent/public/nowhere/t"
    for method, path in (
        *(("GET", f"{path}/permissions") for path in (namespace, topic)),
        *(("POST", f"{path}/permissions/app") for path in (namespace, topic)),
        *(("DELETE", f"{path}/permissions/app") for path in (namespace, topic)),
        ("GET", f"{namespace}/permissions/subscription"),
        ("POST", f"{namespace}/permissions/subscription/s"),
        ("DELETE", f"{namespace}/permissions/s/app"),
        *((method, f"{namespace}/subscriptionAuthMode") for method in ("GET", "DELETE")),
    ):
        assert http.request(method, path, json=["produce"]).status_code == 404, (method, path)


def test_a_role_is_percent_encoded_once(http: httpx.Client, place: str) -> None:
    """A plus sign in it is a plus sign."""
    assert http.post(f"{place}/permissions/cn%3Da+b%2Fc%25", json=["produce"]).status_code == 204
    assert granted(http, place) == {"cn=a+b/c%": ["produce"]}
    assert http.delete(f"{place}/permissions/cn%3Da+b%2Fc%25").status_code == 204
    assert granted(http, place) == {}


@pytest.mark.parametrize("role", ["clearBacklog", "unload", "subscription", "permissions", "topics"])
def test_no_word_of_a_path_is_in_the_way_of_a_role(http: httpx.Client, place: str, role: str) -> None:
    """Whatever it is called."""
    assert http.post(f"{place}/permissions/{role}", json=["produce"]).status_code == 204
    assert granted(http, place) == {role: ["produce"]}
    assert http.delete(f"{place}/permissions/{role}").status_code == 204
    assert granted(http, place) == {}


def test_grants_outlive_a_restart(broker: RunningBroker, http: httpx.Client, namespace: str, place: str) -> None:
    """And a crash: they are durable when they are answered."""
    topic = f"/persistent/{namespace}/t"
    assert http.post(f"{place}/permissions/app", json=["produce"]).status_code == 204
    assert http.post(f"{topic}/permissions/job", json=["consume"]).status_code == 204
    assert http.post(f"{place}/subscriptionAuthMode", json="Prefix").status_code == 204
    shown = http.get(place).json()
    broker.kill()
    broker.start()
    assert http.get(place).json() == shown
    assert granted(http, topic) == {"app": ["produce"], "job": ["consume"]}


def test_several_topics_are_granted_and_taken_back_at_once(http: httpx.Client, namespace: str, place: str) -> None:
    """Of one namespace, all or none of them."""
    topics = [f"persistent://{namespace}/{name}" for name in ("t", "u")]
    grants = [{"topic": topic, "role": "app", "actions": ["produce"]} for topic in topics]
    assert http.post("/namespaces/grantPermissionsOnTopics", json=grants).status_code == 204
    shown = http.get(place).json()["auth_policies"]["destination_auth"]
    assert shown == {topic: {"app": ["produce"]} for topic in topics}
    elsewhere = {"topic": "persistent://public/default/t", "role": "app", "actions": ["produce"]}
    for wrong, status in (([*grants, elsewhere], 400), ([], 400), ([{**grants[0], "role": "a*"}], 412)):
        assert http.post("/namespaces/grantPermissionsOnTopics", json=wrong).status_code == status
    assert http.post("/namespaces/grantPermissionsOnTopics", json=[{**grants[0], "actions": ["x"]}]).status_code == 400
    assert http.get(place).json()["auth_policies"]["destination_auth"] == shown
    taken = [{"topic": topic, "role": "app"} for topic in topics]
    assert http.post("/namespaces/revokePermissionsOnTopics", json=taken).status_code == 204
    assert http.get(place).json()["auth_policies"]["destination_auth"] == {}
