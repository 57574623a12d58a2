# SPDX-License-Identifier: Apache-2.0
"""Where a behaviour does not hold in all cells, and why: a client's limits, decisions to differ from Apache Pulsar.

A behaviour that is listed must fail in these cells (for a limit: because the client has no words for it), so the table
cannot outlive its reasons. ``*`` stands for every client or server.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Exempt(NamedTuple):
    """``behaviour`` (the test's name without parameters) does not hold for ``client`` on ``server``."""

    behaviour: str
    client: str
    server: str
    reason: str

    def covers(self, behaviour: str, client: str, server: str) -> bool:
        """Whether this line is about that test in that cell."""
        return self.behaviour == behaviour and self.client in ("*", client) and self.server in ("*", server)


NO_PRIORITY: Final = "the Python client has no priority levels"
NO_RETRY: Final = "the Python client has no retry topics"
LONG_TIMEOUT: Final = "the Python client takes no ack timeout below 10 s"
NO_CHUNK_SIZE: Final = "the Python client cannot choose the size of chunks"

EXCEPTIONS: Final[tuple[Exempt, ...]] = (
    Exempt("test_a_better_priority_takes_the_lead", "python", "*", NO_PRIORITY),
    Exempt("test_a_better_priority_is_served_first", "python", "*", NO_PRIORITY),
    Exempt(
        "test_a_vanished_consumers_messages_are_counted",
        "*",
        "apache",
        "semantics 2.4.9: the loss of a consumer counts as a redelivery; Apache Pulsar 4.2.4 does not count it",
    ),
    Exempt(
        "test_a_pattern_finds_topics_that_come_later",
        "python",
        "*",
        "the Python client does not look for new topics in the period that it is given",
    ),
    Exempt(
        "test_a_pattern_may_be_of_a_namespace_that_is_not_there",
        "java",
        "*",
        "the Java client also asks for topics that are not stored, which is an error of a namespace that is not there",
    ),
    Exempt("test_a_broker_tells_of_topics_that_match_a_pattern", "python", "*", "the Python client knows no watches"),
    Exempt(
        "test_several_topics_need_a_queue",
        "python",
        "*",
        "the Python client lets several topics be without a queue, as long as none of them has partitions",
    ),
    Exempt("test_a_paused_consumer_takes_no_more", "python", "*", "the Python client pauses listeners only"),
    Exempt("test_what_is_not_acknowledged_in_time_comes_again", "python", "*", LONG_TIMEOUT),
    Exempt("test_a_refused_message_of_a_partition_comes_once_and_after_its_delay", "python", "*", LONG_TIMEOUT),
    Exempt("test_a_retried_message_comes_back_later_and_at_last_as_a_dead_letter", "python", "*", NO_RETRY),
    Exempt("test_a_retried_message_may_acknowledge_all_before_it", "python", "*", NO_RETRY),
    Exempt("test_nothing_is_retried_cumulatively_where_others_consume", "python", "*", NO_RETRY),
    Exempt("test_retrying_has_to_be_enabled", "python", "*", NO_RETRY),
    Exempt(
        "test_a_delayed_message_keeps_its_place_in_the_log",
        "python",
        "*",
        "the Python client sends a delayed message before the batch that is open",
    ),
    Exempt("test_chunks_of_several_producers_may_mix", "python", "*", NO_CHUNK_SIZE),
    Exempt("test_shared_consumers_get_whole_messages", "python", "*", NO_CHUNK_SIZE),
    Exempt("test_a_refused_chunked_message_comes_again_whole", "python", "*", NO_CHUNK_SIZE),
    Exempt("test_seek_to_a_chunked_message_brings_what_is_behind_it", "python", "*", NO_CHUNK_SIZE),
    Exempt(
        "test_an_older_sequence_id_is_confirmed_but_not_stored",
        "ours",
        "*",
        "semantics 1.7.2: our client refuses a sequence id that does not rise before it is sent",
    ),
    Exempt(
        "test_an_event_time_before_1970_is_a_negative_number",
        "python",
        "*",
        "the Python client sends no negative number",
    ),
    Exempt("test_unsubscribing_by_force_disconnects_others", "python", "*", "the Python client has no such option"),
    Exempt("test_a_reader_begins_so_long_ago", "python", "*", "the Python client has no such option"),
    Exempt("test_consumers_are_told_the_end_of_a_terminated_topic", "python", "*", "the Python client does not tell"),
)
