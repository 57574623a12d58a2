# SPDX-License-Identifier: Apache-2.0
"""Suggestions for misspelt names."""

from broker_core.base.names import TopicName
from broker_core.base.suggest import closest, did_you_mean, meant_topic

_NAMES = ["maxMessageSize", "durability", "maxConnections"]


def test_spelling_case_and_underscores_are_forgiven() -> None:
    """The nearest name is found whatever the style of the misspelt one."""
    assert closest("max_message_sise", _NAMES) == "maxMessageSize"
    assert closest("Durabilty", _NAMES) == "durability"


def test_a_word_that_is_like_nothing_gets_the_other_advice() -> None:
    """No wild guesses."""
    assert closest("zzz", _NAMES) is None
    assert did_you_mean("zzz", _NAMES, otherwise="see the list") == "see the list"
    assert did_you_mean("durabilty", _NAMES) == 'did you mean "durability"?'


def test_a_topic_is_suggested_by_the_shortest_name_of_its_own_namespace() -> None:
    """A partition stands for its topic, and topics that brokers keep for themselves are nobody's mistake."""
    there = [*map(TopicName.parse, ["flights-partition-0", "a/b/fligths", "__flihgts", "non-persistent://a/b/flihgts"])]
    assert meant_topic(TopicName.parse("flihgts"), there) == 'did you mean "flights"?'
    assert meant_topic(TopicName.parse("flights-partition-7"), there) == 'did you mean "flights"?'
    assert meant_topic(TopicName.parse("a/b/flihgts"), there) == 'did you mean "a/b/fligths"?'
    assert meant_topic(TopicName.parse("ships"), there) == ""
