# SPDX-License-Identifier: Apache-2.0
"""Where a behaviour does not hold in all cells, and why: a client's limits, decisions to differ from Apache Pulsar.

A behaviour that is listed must fail in these cells (for a limit: because the client has no words for it), so the table
cannot outlive its reasons. Behaviours are the names of their tests, with parameters where others of them hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from tests.behaviour.access import SECURED
from tests.behaviour.schema_exceptions import SCHEMA_DIFFERENCES, SCHEMA_LIMITS


class Exempt(NamedTuple):
    """``behaviour`` does not hold for ``client`` on ``server`` with ``access``. ``*`` stands for every one."""

    behaviour: str
    client: str
    server: str
    reason: str
    access: str = "*"
    waits: bool = False
    """It fails only when the client gives up, so that it runs in rigs alone."""

    def covers(self, names: Collection[str], client: str, server: str, access: str) -> bool:
        """Whether this line is about the test of these names in that cell."""
        cell = (self.client, client), (self.server, server), (self.access, access)
        return self.behaviour in ("*", *names) and all(listed in ("*", one) for listed, one in cell)


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
    "it has no transactions": ("test_clients_have_transactions",),
    "it gives out what compaction has left out of a batch, without a value": (
        "test_of_a_batch_a_reader_gets_what_is_kept",
    ),
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
    "it gives out what compaction has left out of a batch, without a value": (
        "test_of_a_batch_a_reader_gets_what_is_kept",
    ),
    "it gives out no message without a value that travels alone": (
        "test_a_deletion_is_a_message_without_a_value",
        "test_a_table_of_a_compacted_topic_has_no_deleted_keys",
    ),
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
    "it acknowledges nothing cumulatively in a transaction": (
        "test_a_cumulative_one_counts_with_its_transaction",
        "test_a_cumulative_one_is_refused_in_a_transaction_where_messages_are_shared",
        "test_single_and_cumulative_ones_of_two_transactions_are_both_kept",
    ),
    "its transaction also acknowledges what others have acknowledged of a batch before": (
        "test_transactions_share_a_batch",
    ),
}

RUST: Final = {
    "it has no chunks": (
        *PYTHON["it cannot choose the size of chunks"],
        "test_a_message_of_11_mib_arrives_whole",
        "test_chunks_and_batches_exclude_each_other",
    ),
    "its consumers cannot choose ranges or a relaxed order": (
        "test_ranges_decide_who_gets_a_key",
        "test_ranges_that_overlap_are_refused",
        "test_a_slot_that_nobody_covers_waits_and_holds_up_nobody",
        "test_ranges_do_not_move_when_their_owner_leaves",
        "test_another_mode_is_refused",
        "test_the_ordering_key_decides_before_the_key",
        "test_with_relaxed_order_a_newcomer_gets_its_keys_at_once",
        "test_a_refused_message_comes_back_to_the_owner_of_its_key",
        "test_batches_by_key_go_to_the_owners_of_their_keys",
        "test_a_consumer_without_room_holds_up_only_its_own_keys",
    ),
    "it makes no batches by key": ("test_batches_by_key_go_to_the_partitions_of_their_keys",),
    "it acknowledges batches as a whole": (
        "test_the_rest_of_a_batch_comes_again",
        "test_a_cumulative_one_inside_a_batch_keeps_what_is_behind_it",
        "test_without_batch_indexes_the_whole_batch_comes_again",
        "test_without_batch_indexes_a_cumulative_one_stops_before_the_batch",
        "test_refusing_one_of_a_batch_brings_back_the_rest_of_it",
    ),
    "it shows all of a batch to who begins within it": (
        "test_an_operator_resets_into_a_batch[0-True]",
        "test_an_operator_resets_into_a_batch[2-False]",
        "test_an_operator_resets_into_a_batch[2-True]",
        "test_an_operator_resets_into_a_batch[3-False]",
    ),
    "it does not tell how often a message was delivered": (
        "test_a_refused_message_comes_again_alone_and_counted",
        "test_what_a_blocked_consumer_refuses_comes_again_to_it",
        "test_a_vanished_consumers_messages_are_counted",
        "test_counts_begin_anew_when_everybody_had_left",
    ),
    "it has no delay of what is refused": (
        "test_a_refused_message_does_not_come_early",
        "test_a_refused_message_of_a_partition_comes_once_and_after_its_delay",
        "test_acknowledging_a_refused_message_ends_the_matter",
        "test_a_message_refused_twice_comes_again_once",
    ),
    "its seek makes a second consumer beside the first": (
        "test_seek_goes_behind_a_message",
        "test_seek_goes_into_a_batch",
        "test_seek_by_time_is_inclusive",
        "test_seek_forgets_counts",
        "test_seek_by_time_moves_all_partitions",
        "test_a_consumer_seeks_in_a_view",
        "test_a_seek_on_a_non_persistent_topic_changes_nothing",
    ),
    "its readers begin at the message that they are to begin behind": (
        "test_a_reader_begins_behind_a_message_or_at_it",
        "test_a_reader_begins_inside_a_view",
    ),
    "it gives out what compaction has left out of a batch, without a value": (
        "test_of_a_batch_a_reader_gets_what_is_kept",
    ),
    "its readers do not know whether there is more": (
        "test_a_reader_sees_everything_or_what_comes",
        "test_a_reader_knows_whether_there_is_more",
        "test_a_reader_of_a_view_knows_whether_there_is_more",
    ),
    "its readers begin at an id only": ("test_a_reader_begins_so_long_ago",),
    "it has no table views": (
        "test_a_table_holds_the_newest_value_of_each_key",
        "test_a_table_of_a_compacted_topic_has_no_deleted_keys",
    ),
    "it has no retry topics": PYTHON["it has no retry topics"],
    "it names no subscription that keeps dead letters": (
        "test_a_message_that_is_refused_for_ever_becomes_a_dead_letter",
    ),
    "it chooses all sequence ids": (
        "test_a_message_that_is_sent_again_is_stored_once",
        "test_an_older_sequence_id_is_confirmed_but_not_stored",
    ),
    "its producers do not tell their names": ("test_a_name_belongs_to_one_producer",),
    "it has no consumers without a queue": (
        "test_without_a_queue_each_receive_gets_one",
        "test_partitions_need_a_queue",
        "test_several_topics_need_a_queue",
    ),
    "it takes more messages than its queue has room for": (
        "test_permits_limit_what_is_pushed",
        "test_a_better_priority_is_served_first",
    ),
    "it cannot ask for all that is unacknowledged": ("test_asking_for_everything_brings_what_is_unacknowledged",),
    "it sends a cumulative acknowledgement whatever the subscription, and waits for no answer": (
        "test_a_cumulative_one_is_refused_where_messages_are_shared",
    ),
    "it sends a delayed message in a batch": ("test_a_delayed_message_travels_alone",),
    **JAVA,
    "it cannot pause": ("test_a_paused_consumer_takes_no_more",),
    "it cannot unsubscribe by force": ("test_unsubscribing_by_force_disconnects_others",),
    "it has no transactions": PYTHON["it has no transactions"],
    "it knows no watches": ("test_a_broker_tells_of_topics_that_match_a_pattern",),
    "it does not tell the end of a topic": ("test_consumers_are_told_the_end_of_a_terminated_topic",),
}

LIMITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {"python": PYTHON, "java": JAVA, "go": GO, "rust": RUST}
"""Client -> limit -> the behaviours that show it, on every server."""

LOST: Final = "the Python client takes a refusal of CONNECT for a lost connection, and tries again until it gives up"
NOT_SHAKEN: Final = "the Java client takes a failed handshake for a lost connection, and tries again until it gives up"

NO_WAY_IN: Final = (
    "test_who_forges_an_identity_is_told_so",
    "test_who_has_no_identity_is_told_so",
    "test_a_server_with_another_name_is_not_trusted",
    "test_a_server_of_another_authority_is_not_trusted",
)
LOST_TO_GO: Final = (
    "the Go client takes every refusal of a connection for a lost one, and tries again until it gives up"
)
UNTOLD: Final = "the Rust client says that it could not connect, and not why"

GO_ABORTS: Final = (
    "test_messages_of_a_transaction_are_read_all_or_none[abort]",
    "test_an_aborted_transaction_leaves_others_alone",
    "test_a_batch_ends_with_its_transaction[abort]",
    "test_a_chunked_message_ends_with_its_transaction[abort]",
    "test_a_delayed_message_needs_its_time_and_its_commit",
    "test_a_transaction_spans_partitions",
    "test_a_transaction_whose_time_is_over_is_aborted",
    "test_nothing_is_added_to_a_transaction_that_has_ended[abort]",
    "test_a_transaction_goes_on_after_an_unload",
    "test_a_reader_knows_where_the_readable_end_is",
    "test_messages_are_taken_and_made_in_one_transaction",
    "test_a_table_has_what_is_committed",
)
GO_BATCHES: Final = (
    *(
        f"test_acknowledged_messages_come_again_after_an_abort[{kind}-batch]"
        for kind in ("Exclusive", "Failover", "Shared", "Key_Shared")
    ),
    "test_a_consumer_that_acknowledges_in_transactions_is_not_blocked",
)

EXCEPTIONS: Final[tuple[Exempt, ...]] = (
    *(Exempt(behaviour, "go", "*", LOST_TO_GO, waits=True) for behaviour in NO_WAY_IN),
    *(Exempt(behaviour, "rust", "*", UNTOLD) for behaviour in NO_WAY_IN),
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
    Exempt(
        "test_a_fencing_producer_throws_others_out",
        "rust",
        "apache",
        "a producer of the Rust client that was thrown out comes back at once, and Apache Pulsar takes its message",
    ),
    Exempt("*", "rust", "*", "the Rust client has no certificates of its own", access="mtls"),
    *(
        Exempt(
            behaviour,
            "go",
            "apache",
            "semantics 9.1.3: the Go client names the transaction on SEND alone, and Apache Pulsar, which looks for it "
            "in the metadata, gives out what is aborted (apache/pulsar-client-go#1498)",
        )
        for behaviour in GO_ABORTS
    ),
    *(
        Exempt(
            behaviour,
            "go",
            "apache",
            "semantics 9.8.2: the Go client acknowledges what it had of the batch again with each message, which "
            "Apache Pulsar takes for a conflict of the transaction with itself",
        )
        for behaviour in GO_BATCHES
    ),
    Exempt(
        "test_a_message_of_the_largest_size_arrives_and_a_larger_one_is_refused",
        "rust",
        "apache",
        "the Rust client leaves it to the broker to refuse a size, and Apache Pulsar takes what its frames hold",
    ),
    *(Exempt(*each) for each in SCHEMA_DIFFERENCES),
    *(
        Exempt(behaviour, client, "*", f"limit of the {client} client: {limit}")
        for client, limits in (*LIMITS.items(), *SCHEMA_LIMITS.items())
        for limit, behaviours in limits.items()
        for behaviour in behaviours
    ),
)
