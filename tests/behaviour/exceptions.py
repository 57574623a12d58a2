# SPDX-License-Identifier: Apache-2.0
"""Where a behaviour does not hold in all cells, and why: a client's limits, decisions to differ from Apache Pulsar.

A behaviour that is listed must fail in these cells (for a limit: because the client has no words for it), so the table
cannot outlive its reasons. Behaviours are the names of their tests without parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.behaviour.access import SECURED


class Exempt(NamedTuple):
    """``behaviour`` does not hold for ``client`` on ``server`` with ``access``. ``*`` stands for every one of these."""

    behaviour: str
    client: str
    server: str
    reason: str
    access: str = "*"
    waits: bool = False
    """It fails only when the client gives up, so that it runs in rigs alone."""

    def covers(self, behaviour: str, client: str, server: str, access: str) -> bool:
        """Whether this line is about that test in that cell."""
        named = (self.client, client), (self.server, server), (self.access, access)
        return self.behaviour == behaviour and all(listed in ("*", one) for listed, one in named)


PYTHON: Final = {
    "it has no priority levels": ("test_a_better_priority_takes_the_lead", "test_a_better_priority_is_served_first"),
    "it has no retry topics": (
        "test_a_retried_message_comes_back_later_and_at_last_as_a_dead_letter",
        "test_a_retried_message_may_acknowledge_all_before_it",
        "test_nothing_is_retried_cumulatively_where_others_consume",
        "test_retrying_has_to_be_enabled",
    ),
    "it takes no ack timeout below 10 s": (
        "test_what_is_not_acknowledged_in_time_comes_again",
        "test_a_refused_message_of_a_partition_comes_once_and_after_its_delay",
    ),
    "it cannot choose the size of chunks": (
        "test_chunks_of_several_producers_may_mix",
        "test_shared_consumers_get_whole_messages",
        "test_a_refused_chunked_message_comes_again_whole",
        "test_seek_to_a_chunked_message_brings_what_is_behind_it",
    ),
    "it does not look for new topics in the period that it is given": ("test_a_pattern_finds_topics_that_come_later",),
    "it knows no watches": ("test_a_broker_tells_of_topics_that_match_a_pattern",),
    "it lets several topics be without a queue, as long as none of them has partitions": (
        "test_several_topics_need_a_queue",
    ),
    "it pauses listeners only": ("test_a_paused_consumer_takes_no_more",),
    "it sends a delayed message before the batch that is open": ("test_a_delayed_message_keeps_its_place_in_the_log",),
    "it sends no negative number": ("test_an_event_time_before_1970_is_a_negative_number",),
    "it cannot unsubscribe by force": ("test_unsubscribing_by_force_disconnects_others",),
    "its readers begin at an id only": ("test_a_reader_begins_so_long_ago",),
    "it does not tell the end of a topic": ("test_consumers_are_told_the_end_of_a_terminated_topic",),
}

JAVA: Final = {
    "it also asks for topics that are not stored, which is an error of a namespace that is not there": (
        "test_a_pattern_may_be_of_a_namespace_that_is_not_there",
    ),
}

GO: Final = {
    "it has no priority levels": PYTHON["it has no priority levels"],
    "it has no ack timeout": PYTHON["it takes no ack timeout below 10 s"],
    "it cannot ask for all that is unacknowledged": (
        "test_asking_for_everything_brings_what_is_unacknowledged",
        "test_a_refused_chunked_message_comes_again_whole",
    ),
    "it retries single messages only": (
        "test_a_retried_message_may_acknowledge_all_before_it",
        "test_nothing_is_retried_cumulatively_where_others_consume",
    ),
    "it cannot pause": ("test_a_paused_consumer_takes_no_more",),
    "it has no such access mode": ("test_a_fencing_producer_throws_others_out",),
    "it knows no watches": ("test_a_broker_tells_of_topics_that_match_a_pattern",),
    "its readers begin at an id only": ("test_a_reader_begins_so_long_ago",),
    "it does not tell the end of a topic": ("test_consumers_are_told_the_end_of_a_terminated_topic",),
    "it gives several topics that are to be without a queue one": ("test_several_topics_need_a_queue",),
    "it gives out nothing after a seek until the server has disconnected its consumer": (
        "test_a_seek_on_a_non_persistent_topic_changes_nothing",
    ),
    "it chooses the partition by the ordering key, where there is one": ("test_a_key_stays_on_its_partition",),
    "its producers do not tell the sequence id that the broker welcomed them with": (
        "test_a_message_that_is_sent_again_is_stored_once",
    ),
    "it divides a negative time as if it were a large positive one": (
        "test_an_event_time_before_1970_is_a_negative_number",
    ),
    "it shows a message that travels alone as the first of a batch": ("test_a_delayed_message_travels_alone",),
    "it sends a delayed message before the batch that is open": ("test_a_delayed_message_keeps_its_place_in_the_log",),
}

LIMITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {"python": PYTHON, "java": JAVA, "go": GO}
"""Client -> limit -> the behaviours that show it, on every server."""

LOST: Final = "the Python client takes a refusal of CONNECT for a lost connection, and tries again until it gives up"
NOT_SHAKEN: Final = "the Java client takes a failed handshake for a lost connection, and tries again until it gives up"

EXCEPTIONS: Final[tuple[Exempt, ...]] = (
    Exempt("test_who_forges_an_identity_is_told_so", "python", "*", LOST, waits=True),
    Exempt("test_who_has_no_identity_is_told_so", "python", "*", LOST, waits=True),
    Exempt("test_a_server_of_another_authority_is_not_trusted", "java", "*", NOT_SHAKEN, waits=True),
    # Apache Pulsar names the CAs that it trusts, and the client keeps a certificate of another one to itself.
    Exempt("test_who_forges_an_identity_is_told_so", "java", "pulsarish", NOT_SHAKEN, access="mtls", waits=True),
    Exempt(
        "test_a_server_with_another_name_is_not_trusted",
        "java",
        "*",
        "the Java client looks up the name of an address, and verifies that one",
    ),
    Exempt(
        "test_who_has_no_identity_is_told_so",
        "ours",
        "pulsarish",
        "our client shows the token of a broker's data directory that it can read",
    ),
    *(
        Exempt(
            "test_a_pattern_may_be_of_a_namespace_that_is_not_there",
            *("*", "*", "who may list nothing in a namespace is not told whether it is there"),
            access=access,
        )
        for access in SECURED
    ),
    Exempt(
        "test_a_vanished_consumers_messages_are_counted",
        "*",
        "apache",
        "semantics 2.4.9: the loss of a consumer counts as a redelivery; Apache Pulsar 4.2.4 does not count it",
    ),
    Exempt(
        "test_an_older_sequence_id_is_confirmed_but_not_stored",
        "ours",
        "*",
        "semantics 1.7.2: our client refuses a sequence id that does not rise before it is sent",
    ),
    Exempt(
        "test_a_table_holds_the_newest_value_of_each_key",
        "go",
        "apache",
        "a table view of the Go client has a schema, which Apache Pulsar refuses where messages without one are",
    ),
    *(
        Exempt(behaviour, client, "*", f"limit of the {client} client: {limit}")
        for client, limits in LIMITS.items()
        for limit, behaviours in limits.items()
        for behaviour in behaviours
    ),
)
