# SPDX-License-Identifier: Apache-2.0
"""Where behaviours with schemas do not hold, and why: lines of the table in ``exceptions``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NUMBERS: Final = ("INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE")
TIMES: Final = ("DATE", "TIME", "TIMESTAMP", "INSTANT", "LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME")


def _primitives(*kinds: str) -> tuple[str, ...]:
    return tuple(f"test_a_primitive_arrives_as_its_type[{kind}]" for kind in kinds)


PAIRS: Final = (
    "test_a_pair_of_key_and_value_arrives",
    "test_a_pair_may_lack_its_value",
    "test_a_pair_of_other_types_is_another_schema",
    "test_who_takes_any_schema_reads_pairs_of_several_versions",
    "test_separated_keys_decide_who_gets_a_pair",
    "test_separated_keys_decide_what_compaction_keeps",
)
ANY_SCHEMA: Final = (
    "test_who_takes_any_schema_reads_each_message_by_its_own",
    "test_who_takes_any_schema_reads_messages_without_one",
    "test_who_takes_any_schema_reads_a_mix",
    "test_who_takes_any_schema_is_no_obstacle_to_the_first",
    "test_bytes_of_the_topics_schema_are_sent_by_who_asks_for_it",
    "test_bytes_are_sent_where_there_is_no_schema_to_ask_for",
)
SEVERAL_SCHEMAS: Final = (
    "test_messages_of_several_schemas_have_versions_of_their_own",
    "test_a_batch_ends_where_the_schema_changes",
    "test_a_message_whose_schema_is_refused_fails_alone",
)

SCHEMA_LIMITS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "ours": {
        "it has microseconds, and no nanoseconds": _primitives("INSTANT"),
        "of Protobuf it has the native schema alone": ("test_a_message_of_protobuf_arrives[PROTOBUF]",),
        "its producers have one schema": (
            *SEVERAL_SCHEMAS,
            "test_records_of_several_schemas_are_sent_in_a_transaction",
        ),
    },
    "python": {
        "it has no schemas of numbers and times": (
            *_primitives("BOOLEAN", *NUMBERS, *TIMES),
            "test_a_number_has_a_schema_where_one_is_enforced",
        ),
        "of Protobuf it has the native schema alone": ("test_a_message_of_protobuf_arrives[PROTOBUF]",),
        "it has no pairs of key and value": PAIRS,
        "it sends no message without a value by a schema": ("test_no_value_is_told_from_an_empty_one",),
        "its producers have one schema": SEVERAL_SCHEMAS,
        "it neither reads nor writes by whatever schema a topic has": ANY_SCHEMA,
        "it has no retry topics": ("test_a_retried_record_has_the_schema_of_its_message",),
        "its dead letters have the schema of their consumer, whatever they were written with": (
            "test_a_dead_letter_has_the_version_that_it_was_written_with",
        ),
    },
    "java": {
        "it takes no definition that is not Avro": ("test_a_definition_before_avro_is_refused",),
    },
    "go": {
        "it has no schemas of truth values and times": _primitives("BOOLEAN", *TIMES),
        "it writes the smallest byte of whole numbers first": _primitives("INT16", "INT32", "INT64"),
        "it has no pairs of key and value": PAIRS,
        "it takes no definition that is not Avro": ("test_a_definition_before_avro_is_refused",),
        "it derives no schema from a type": ("test_a_class_and_its_definition_are_one_version",),
        "it neither reads nor writes by whatever schema a topic has": ANY_SCHEMA,
        "it reads a record by the schema of its writer, and fills in no defaults": (
            "test_a_consumer_fills_in_the_defaults_of_its_schema",
            "test_messages_of_a_deleted_schema_are_read",
        ),
        "it tells no message without a value from an empty one": ("test_no_value_is_told_from_an_empty_one",),
        "it tells versions of what travels in batches alone": (
            "test_a_delayed_record_has_its_version",
            "test_a_retried_record_has_the_schema_of_its_message",
        ),
        "it reads no text of Avro above 1 MiB": ("test_a_record_of_many_chunks_arrives",),
        "its dead letters have the schema of their consumer, whatever they were written with": (
            "test_a_dead_letter_has_the_version_that_it_was_written_with",
        ),
    },
    "rust": {
        "it has no chunks": ("test_a_record_of_many_chunks_arrives",),
        "it names no subscription that keeps dead letters": (
            "test_a_dead_letter_has_the_schema_of_its_message",
            "test_a_dead_letter_has_the_version_that_it_was_written_with",
        ),
        "it has no retry topics": ("test_a_retried_record_has_the_schema_of_its_message",),
        "it sends no message without a value": (
            "test_no_value_is_told_from_an_empty_one",
            "test_a_pair_may_lack_its_value[SEPARATED]",
            "test_separated_keys_decide_what_compaction_keeps",
        ),
        "its readers ask for no schema": (
            "test_a_view_keeps_records_of_several_versions",
            "test_a_consumer_fills_in_the_defaults_of_its_schema",
            "test_messages_of_a_deleted_schema_are_read",
        ),
        "its readers begin at the message that they are to begin behind": ("test_a_reader_reads_records",),
        "it has no table views": ("test_a_table_holds_records", "test_an_incompatible_table_view_is_refused"),
        "its producers have one schema": SEVERAL_SCHEMAS,
        "its producers ask for no schema": (
            "test_bytes_of_the_topics_schema_are_sent_by_who_asks_for_it",
            "test_bytes_are_sent_where_there_is_no_schema_to_ask_for",
        ),
    },
}
"""Client -> limit -> the behaviours that show it, on every server."""


SCHEMA_DIFFERENCES: Final[tuple[tuple[str, str, str, str], ...]] = (
    (
        "test_bytes_are_no_schema_of_a_topic",
        *("go", "apache", "semantics 10.4: the Go client calls bytes NONE, which Apache Pulsar takes for a schema"),
    ),
    (
        "test_records_of_a_transaction_are_read_all_or_none[abort]",
        *("go", "apache", "semantics 9.1.3: as without schemas, Apache Pulsar gives out what the Go client aborts"),
    ),
    (
        "test_a_pair_of_other_types_is_another_schema",
        *("*", "apache", "semantics 10.6: Apache Pulsar compares definitions alone, not types and encoding"),
    ),
    (
        "test_a_deletion_of_nothing_leaves_no_trace",
        *("*", "apache", "semantics 10.11: Apache Pulsar stores a deletion as version 0"),
    ),
    (
        "test_messages_of_a_deleted_schema_are_read",
        *("*", "apache", "semantics 10.12: Apache Pulsar gives nobody a version from before a deletion"),
    ),
    (
        "test_a_consumer_with_the_topics_schema_is_let_in[ALWAYS_INCOMPATIBLE]",
        *("*", "apache", "semantics 10.15: Apache Pulsar refuses it, though it reads what is there"),
    ),
)
"""Behaviour, client, server, reason."""
