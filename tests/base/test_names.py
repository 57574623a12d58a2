# SPDX-License-Identifier: Apache-2.0
"""Topic, namespace and subscription names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.base.errors import InvalidTopicNameError
from broker_core.base.names import NamespaceName, TopicName, check_subscription_name


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("x", "persistent://public/default/x"),
        ("t/n/x", "persistent://t/n/x"),
        ("persistent://t/n/x", "persistent://t/n/x"),
        ("non-persistent://t/n/x", "non-persistent://t/n/x"),
        ("x-partition-7", "persistent://public/default/x-partition-7"),
    ],
)
def test_short_and_full_names_become_canonical(text: str, full: str) -> None:
    """1.1.1 and 1.1.2: the defaults fill what is missing."""
    assert str(TopicName.parse(text)) == full


@pytest.mark.parametrize(
    "text",
    ["", "a/b", "a/b/c/d", "kafka://t/n/x", "persistent://t/n", "persistent://t/cluster/n/x", "t//x", "t/n/", "t n/n/x",
     "x\x00", "x\n", "persistent://t/../", "x" * 2000, "té/n/x"],
)  # fmt: skip
def test_names_that_mean_nothing_are_refused_with_a_hint(text: str) -> None:
    """1.1.2 and 1.1.3: other slash counts, four-part legacy names, bad characters and lengths are errors."""
    with pytest.raises(InvalidTopicNameError, match="not valid"):
        TopicName.parse(text)


@pytest.mark.parametrize(
    ("text", "index", "base"),
    [
        ("x", -1, "x"),
        ("x-partition-0", 0, "x"),
        ("x-partition-12", 12, "x"),
        ("x-partition-01", -1, "x-partition-01"),
        ("x-partition-", -1, "x-partition-"),
        ("x-partition-1-partition-2", 2, "x-partition-1"),
        ("-partition-3", -1, "-partition-3"),
        ("x-partition-2147483647", 2**31 - 1, "x"),
        ("x-partition-2147483648", -1, "x-partition-2147483648"),
        ("x-partition-20260101120000", -1, "x-partition-20260101120000"),
        ("x-partition-" + "9" * 900, -1, "x-partition-" + "9" * 900),
        ("x-partition-1\u0662", -1, "x-partition-1\u0662"),
    ],
)
def test_the_partition_suffix_is_read_strictly(text: str, index: int, base: str) -> None:
    """1.1.4: decimal without leading zeros; anything else is part of the name."""
    name = TopicName.parse(text)
    assert (name.partition_index, name.base) == (index, TopicName.parse(base))


def test_partition_names_come_back_to_their_base() -> None:
    """1.2.1: partition(i) of a base parses back to i and the base."""
    name = TopicName.parse("t/n/x")
    part = name.partition(3)
    assert (str(part), part.partition_index, part.base) == ("persistent://t/n/x-partition-3", 3, name)


def test_system_names_are_known() -> None:
    """1.1.6: a local name that starts with two underscores is reserved."""
    assert TopicName.parse("__change_events").is_system
    assert not TopicName.parse("_mine").is_system


@pytest.mark.parametrize(
    "text",
    [
        "__change_events-partition-1",
        "__transaction_buffer_snapshot",
        "orders-billing__transaction_pending_ack",
        "orders-billing__transaction_pending_ack-partition-0",
        "persistent://pulsar/system/transaction_coordinator_assign-partition-3",
        "persistent://pulsar/localhost:8080/healthcheck",
    ],
)
def test_topics_that_brokers_keep_for_themselves_are_known(text: str) -> None:
    """1.1.6: change events, transactions, health checks, by the names that Apache Pulsar gives them."""
    assert TopicName.parse(text).is_internal


@pytest.mark.parametrize("text", ["healthcheck", "pulsar/mine/orders", "t/system/orders", "_mine", "transaction_log"])
def test_topics_of_users_are_not_taken_for_internal_ones(text: str) -> None:
    """1.1.6: names that are like those of brokers."""
    assert not TopicName.parse(text).is_internal


@given(st.text(min_size=1, max_size=40))
def test_parsing_is_idempotent_or_refuses(text: str) -> None:
    """I1.4: parse(str(parse(x))) = parse(x), and nothing but InvalidTopicNameError comes out otherwise."""
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError:
        return
    assert TopicName.parse(str(name)) == name


def test_namespaces_have_two_parts() -> None:
    """1.1.3: tenant/namespace, nothing else."""
    assert str(NamespaceName.parse("a/b")) == "a/b"
    with pytest.raises(InvalidTopicNameError):
        NamespaceName.parse("a")


@pytest.mark.parametrize("name", ["", "a\x07", "s" * 600])
def test_bad_subscription_names_are_refused(name: str) -> None:
    """1.9.3: a subscription name identifies a cursor, so it must be printable and bounded."""
    with pytest.raises(InvalidTopicNameError, match="subscription"):
        check_subscription_name(name)
