# SPDX-License-Identifier: Apache-2.0
"""Decisions of ``Authorization``, without any broker: held to a second, shorter statement of the same rules."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.names import NamespaceName, TopicName
from broker_core.base.policies import AuthPolicies
from broker_core.base.settings import Settings
from broker_core.server.security.authorization import UNCHECKED, Authorization, Caller
from broker_core.server.security.identity import Identity
from broker_core.server.security.rights import CLUSTER, About, Need, Resource, Right
from tests.server.rights_model import SUPERUSER, Book, may

NAMESPACE = NamespaceName.parse("acme/ns")
TOPICS = [
    TopicName.parse(f"{domain}://acme/ns/{local}")
    for domain in ("persistent", "non-persistent")
    for local in ("t", "t-partition-0", "t-partition-1", "u")
]
ROLES = ["app", "app-2", "2", "boss", "stranger", SUPERUSER, "proxy"]
NAMES = [*ROLES, "*", "app*", "*2", "a*p"]
SUBSCRIPTIONS = ["s", "app-s", "2"]
SETTINGS = Settings(super_user_roles=(SUPERUSER,), proxy_roles=("proxy",), authorization_allow_wildcards_matching=True)


def allows(book: Book, role: str, right: Right, resource: Resource, *, original: str = "") -> bool:
    return Authorization(SETTINGS, book).allows(Caller(role, original), right, resource)


actions = st.lists(st.sampled_from(["produce", "consume", "functions"]), unique=True).map(tuple)
of_roles = st.dictionaries(st.sampled_from(NAMES), actions, max_size=4)
books = st.builds(
    Book,
    grants=st.builds(
        AuthPolicies,
        namespace_auth=of_roles,
        destination_auth=st.dictionaries(st.sampled_from([str(each) for each in TOPICS]), of_roles, max_size=4),
        subscription_auth_roles=st.dictionaries(
            st.sampled_from(SUBSCRIPTIONS), st.lists(st.sampled_from(ROLES), min_size=1, max_size=2).map(tuple)
        ),
    ),
    prefixed=st.booleans(),
)
of_topics = st.builds(Resource.of_topic, st.sampled_from(TOPICS), st.sampled_from([None, *SUBSCRIPTIONS]))
resources = st.one_of(
    of_topics,
    st.builds(lambda topic: Resource.of_topic(topic, every_subscription=True), st.sampled_from(TOPICS)),
    st.builds(Resource.of_namespace, st.just(NAMESPACE), st.sampled_from([None, *SUBSCRIPTIONS])),
    st.just(Resource.of_namespace(NAMESPACE, every_subscription=True)),
    st.just(Resource.of_namespace(NamespaceName.parse("none/ns"))),
    st.sampled_from([CLUSTER, Resource(tenant="acme"), Resource(tenant="other"), Resource(tenant="missing")]),
)


@given(book=books, role=st.sampled_from(ROLES), right=st.sampled_from(Right), resource=resources)
def test_a_decision_is_that_of_the_model(book: Book, role: str, right: Right, resource: Resource) -> None:
    """For random grants, roles, rights and resources."""
    assert allows(book, role, right, resource) == may(book, role, right, resource)


@given(book=books, role=st.sampled_from(ROLES), right=st.sampled_from(Right), resource=resources, more=of_roles)
def test_another_grant_takes_nothing_away(
    book: Book, role: str, right: Right, resource: Resource, more: dict[str, tuple[str, ...]]
) -> None:
    """There is no grant that denies."""
    before = book.grants.namespace_auth
    added = {name: (*before.get(name, ()), *more.get(name, ())) for name in before.keys() | more.keys()}
    larger = Book(msgspec.structs.replace(book.grants, namespace_auth=added), book.prefixed)
    assert not allows(book, role, right, resource) or allows(larger, role, right, resource)


@given(book=books, original=st.sampled_from(ROLES), right=st.sampled_from(Right), resource=resources)
def test_a_proxy_has_what_both_roles_have(book: Book, original: str, right: Right, resource: Resource) -> None:
    """Its own rights, even those of a superuser, help nobody who speaks through it."""
    for proxy in ("proxy", "root"):
        both = allows(book, proxy, right, resource) and allows(book, original, right, resource)
        assert allows(book, proxy, right, resource, original=original) == both


@given(book=books, role=st.sampled_from(ROLES), right=st.sampled_from(Right))
def test_a_partition_has_the_rights_of_its_topic(book: Book, role: str, right: Right) -> None:
    """Unless a grant names the partition, or a wildcard names the topic, which means itself only."""
    partition = TopicName.parse("persistent://acme/ns/t-partition-0")
    without = {name: roles for name, roles in book.grants.destination_auth.items() if "partition" not in name}
    plain = {name: {r: a for r, a in roles.items() if "*" not in r} for name, roles in without.items()}
    book = Book(msgspec.structs.replace(book.grants, destination_auth=plain), book.prefixed)
    of_partition = allows(book, role, right, Resource.of_topic(partition))
    assert of_partition == allows(book, role, right, Resource.of_topic(partition.base))


@pytest.mark.parametrize("right", [each for each in Right if each not in UNCHECKED])
def test_nobody_may_do_nothing(right: Right) -> None:
    """A client without a role is refused everything that needs one."""
    authorization = Authorization(SETTINGS, Book())
    assert not authorization.allows(None, right, Resource.of_topic(TOPICS[0]))
    need = Need(right, About.TOPIC, "no", 401)
    assert authorization.refusal(None, need, CLUSTER) == "Need to authenticate to perform the request"


@pytest.mark.parametrize(
    ("role", "original", "expected"),
    [
        ("app", "", Caller("app")),
        ("app", "app", Caller("app")),
        ("app", "root", None),
        ("", "", None),
        ("", "app", None),
        ("proxy", "", None),
        ("proxy", "proxy", None),
        ("proxy", "app", Caller("proxy", "app")),
        ("root", "app", None),
    ],
)
def test_only_a_proxy_speaks_for_another(role: str, original: str, expected: Caller | None) -> None:
    """And it must do so, for somebody who is no proxy."""
    assert Authorization(SETTINGS, Book()).caller(Identity(role), original) == expected


def test_the_owner_of_the_data_directory_may_do_everything() -> None:
    """Whatever its role is called: a proxy's name makes it none."""
    authorization = Authorization(SETTINGS, Book())
    for role in ROLES:
        owner = authorization.caller(Identity(role, is_owner=True), "")
        assert owner == Caller(role, is_owner=True)
        assert all(authorization.allows(owner, right, Resource.of_topic(TOPICS[0])) for right in Right)
    assert authorization.caller(Identity("app", is_owner=True), "boss") is None


def test_a_star_is_a_letter_where_wildcards_are_off() -> None:
    """The default."""
    book = Book(AuthPolicies(namespace_auth={"app*": ("produce",)}))
    off = Authorization(Settings(), book)
    resource = Resource.of_topic(TOPICS[0])
    assert not off.allows(Caller("app-2"), Right.PRODUCE, resource)
    assert off.allows(Caller("app*"), Right.PRODUCE, resource)
    assert Authorization(SETTINGS, book).allows(Caller("app-2"), Right.PRODUCE, resource)


def test_topics_of_the_broker_take_messages_of_superusers_only() -> None:
    """CVE-2023-30428: whoever writes to them could change policies of others."""
    system = Resource.of_topic(TopicName.parse("persistent://acme/ns/__change_events"))
    book = Book(AuthPolicies(namespace_auth={"app": ("produce",)}))
    assert [allows(book, role, Right.PRODUCE, system) for role in ("app", "boss", "root")] == [False, False, True]


def test_a_subscription_without_its_prefix_is_refused_with_a_word_of_it() -> None:
    """Pulsar's text, for those who may consume from the topic at all; others learn nothing of the mode."""
    book = Book(AuthPolicies(namespace_auth={"app": ("consume",)}), prefixed=True)
    authorization = Authorization(SETTINGS, book)
    need = Need(Right.CONSUME, About.SUBSCRIPTION, "Client is not authorized to subscribe")
    resource = Resource.of_topic(TOPICS[0], "s")
    assert authorization.refusal(Caller("app"), need, resource) == (
        "Failed to create consumer - The subscription name needs to be prefixed by the authentication role, "
        "like app-xxxx for topic: persistent://acme/ns/t"
    )
    assert authorization.refusal(Caller("app-2"), need, resource) == "Client is not authorized to subscribe"
    assert authorization.refusal(Caller("app"), need, Resource.of_topic(TOPICS[0], "app-s")) == ""
