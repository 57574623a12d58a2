# SPDX-License-Identifier: Apache-2.0
"""Options of source and sink: names, aliases, values, and the one-line errors that users see, word for word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from broker_core.base.errors import ConfigError, UsageError
from broker_core.base.moments import Moment
from broker_core.base.positions import Position
from pulsarish_spark.connecting.connection import connected
from pulsarish_spark.options import OPTIONS, ReadOptions, Side, WriteOptions, read_options, write_options
from pulsarish_spark.places.offsets import Offset
from pulsarish_spark.places.start_spec import AtIndex, AtSubscription, Point
from pulsarish_spark.places.topics import TopicPartition

FLIGHTS = "persistent://public/default/flights"
NO_ENVIRONMENT: Mapping[str, str] = {"HOME": "/home/somebody"}


def reading(side: Side = Side.STREAM_READ, /, **options: str) -> ReadOptions:
    """Options as Spark gives them: keys in lower case, with dots for the double underscores here."""
    return read_options({key.replace("__", ".").lower(): text for key, text in options.items()}, side, NO_ENVIRONMENT)


def writing(**options: str) -> WriteOptions:
    return write_options(
        {key.replace("__", ".").lower(): text for key, text in options.items()}, Side.BATCH_WRITE, NO_ENVIRONMENT
    )


def test_only_a_topic_is_needed() -> None:
    """Everything else has a default; without an address it is the embedded broker of the user's data directory."""
    options = reading(topic="flights")
    assert options.selection.names == (FLIGHTS,)
    assert options.address.service_url == ""
    assert options.address.data_dir == "/home/somebody/.local/share/pulsarish"
    assert options.subscription == ""
    assert options.on_loss == "fail"
    assert "headers" not in options.columns


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"subscribe": "flights, t/n/a"}, ("persistent://public/default/flights", "persistent://t/n/a")),
        ({"topics": "flights"}, (FLIGHTS,)),
        ({"path": "flights"}, (FLIGHTS,)),
        ({"assign": '{"flights":[2,0]}'}, (FLIGHTS,)),
    ],
)
def test_topics_are_found_under_every_name_that_people_use(given: dict[str, str], names: tuple[str, ...]) -> None:
    """Kafka's subscribe and assign, pulsar-spark's topics, and load("flights")."""
    assert reading(**given).selection.names == names


def test_patience_has_one_default_and_one_option_for_every_way_to_use_the_format() -> None:
    """In the words of the Java client too, which pulsar-spark passes on; the client of driver and tasks gets it."""
    for address in (reading(topic="t").address, writing(topic="t").address):
        assert (address.operation_timeout_s, address.connection_timeout_s) == (60, 10)
    given = {"operationTimeoutMs": "90500", "pulsar__client__connectionTimeoutMs": "2000"}
    for address in (reading(topic="t", **given).address, writing(topic="t", **given).address):
        with connected(replace(address, service_url="pulsar://nowhere:1").for_executors()) as client:
            assert (client.config.operation_timeout_s, client.config.connection_timeout_s) == (90.5, 2)
    with pytest.raises(ConfigError, match='option operationTimeoutMs="0" is not valid: it takes a whole number'):
        reading(topic="t", operationTimeoutMs="0")


def test_the_environment_gives_the_session_defaults() -> None:
    """An address in the environment is used, a named option beats it."""
    env = {"PULSARISH_SERVICE_URL": "pulsar://a:1", "PULSARISH_DATA_DIR": "/d"}
    assert read_options({"topic": "t"}, Side.READ, env).address.service_url == "pulsar://a:1"
    assert read_options({"topic": "t", "data.dir": "/e"}, Side.READ, env).address.data_dir == "/e"
    assert read_options({"topic": "t"}, Side.READ, {"PULSARISH_DATA_DIR": "/d"}).address.data_dir == "/d"


@pytest.mark.parametrize(
    ("given", "topic", "shown"),
    [
        ({"topic": "flights"}, FLIGHTS, ("", "flights", "flights")),
        ({"topic": FLIGHTS}, FLIGHTS, ("", "flights", FLIGHTS)),
        ({"subscribe": "a, t/n/b,"}, "persistent://t/n/b", ("", "t/n/b", "t/n/b")),
        ({"subscribe": "public/default/a,b"}, "persistent://public/default/a", ("", "a", "public/default/a")),
        ({"assign": '{"flights":[0]}'}, FLIGHTS, ("", "flights", "flights")),
        ({"topic": "flights"}, "persistent://t/n/found", ("", "t/n/found", "t/n/found")),
    ],
)
def test_the_column_topic_can_say_what_the_user_says(
    given: dict[str, str], topic: str, shown: tuple[str, str, str]
) -> None:
    """In full ("": nothing else was asked for), short, and as it is called in the option that names it."""
    names = ("full", "short", "as-given")
    assert tuple(reading(**given, topicNames=each).columns_of(topic).shown_topic for each in names) == shown


def test_positions_are_understood_in_every_form() -> None:
    """Words in any case, Kafka's -1 and -2, ids, indexes; a word for a whole topic."""
    assert start_of("EARLIEST", FLIGHTS, 3) == "earliest"
    mixed = '{"flights":{"0":-1,"1":-2,"2":"5:7","3":"5:7:3:2"},"other":"Latest"}'
    points = [start_of(mixed, FLIGHTS, partition) for partition in range(5)]
    assert points == ["latest", "earliest", Offset(Position(5, 7)), Offset(Position(5, 7), -1, 2), None]
    assert start_of(mixed, "persistent://public/default/other", 9) == "latest"


def start_of(text: str, topic: str, partition: int) -> Point | None:
    """What startingOffsets says of one partition; None: nothing."""
    said = reading(topic="flights", startingOffsets=text).starting.said_of(TopicPartition(topic, partition))
    return None if said is None else said.point


HOUR_AGO = Moment(3_600_000, is_ago=True)
NEW_YEAR = Moment(1767225600000)


def test_times_and_subscriptions_stand_wherever_an_offset_is_asked_for() -> None:
    """For everything, for a topic, for a partition; a number there is an index, never a time."""
    for text in ("-1h", '{"flights":"-60m"}', '{"flights":{"2":"-3600s"}}'):
        assert start_of(text, FLIGHTS, 2) == HOUR_AGO
    for text in ("2026-01-01T00:00:00Z", '{"flights":{"2":"2026-01-01T01:00:00+01:00"}}'):
        assert start_of(text, FLIGHTS, 2) == NEW_YEAR
    assert start_of('{"flights":"subscription:App"}', FLIGHTS, 2) == AtSubscription("App")
    assert start_of('{"flights":{"2":1767225600000}}', FLIGHTS, 2) == AtIndex(1767225600000)
    assert start_of('{"flights":"-1h"}', "persistent://public/default/other", 0) is None


def test_a_time_for_everything_beats_times_of_partitions_and_these_beat_offsets() -> None:
    """The precedence of Spark's Kafka source; what a map does not name, the next one says."""
    options = {
        "startingOffsetsByTimestamp": '{"flights":{"0":5,"1":"2026-01-01T00:00:00Z"}}',
        "startingOffsets": '{"flights":{"0":7,"2":"earliest"}}',
    }
    starting = reading(topic="flights", **options).starting
    said = [starting.said_of(TopicPartition(FLIGHTS, partition)) for partition in range(4)]
    assert said == [
        ("startingOffsetsByTimestamp", Moment(5)),
        ("startingOffsetsByTimestamp", NEW_YEAR),
        ("startingOffsets", "earliest"),
        None,
    ]
    everything = reading(topic="flights", startingTimestamp="-1h", **options).starting
    assert everything.said_of(TopicPartition(FLIGHTS, 0)) == ("startingTimestamp", HOUR_AGO)


def test_the_word_subscription_needs_to_know_which() -> None:
    """That of the query itself, if it has a name, else the one that is named."""
    assert reading(topic="t", startingOffsets="subscription", subscriptionName="app").subscription == "app"
    with pytest.raises(ConfigError) as caught:
        reading(topic="t", startingOffsets="subscription")
    assert str(caught.value) == (
        "startingOffsets says subscription, and no subscriptionName says which; "
        'write which one: "subscription:my-application"'
    )


READ_ERRORS = [
    (
        Side.READ,
        {"topic": "t", "startingOffset": "earliest"},
        (
            'option "startingoffset" is unknown; did you mean startingOffsets? '
            """example: .option("startingOffsets", '{"flights":{"0":"5:12","1":1000,"2":"-1h"}}')"""
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "kafka__bootstrap__servers": "h:9092"},
        (
            'option "kafka.bootstrap.servers" names a Kafka cluster and this format speaks Pulsar; give '
            '.option("service.url", "pulsar://host:6650"), or no address at all to use the embedded broker'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "kafka__fetch__max__wait__ms": "20"},
        'option "kafka.fetch.max.wait.ms" is a setting of the Kafka client, which is not used here; remove it',
    ),
    (
        Side.READ,
        {"topic": "t", "compression": "lz4"},
        'option "compression" belongs to the sink, not to the source; remove it',
    ),
    (
        Side.STREAM_READ,
        {"topic": "t", "endingOffsets": "latest"},
        (
            "endingOffsets says latest, which is no end of a stream; "
            "give an id, an index or a time, or read what is there with .trigger(availableNow=True)"
        ),
    ),
    (
        Side.STREAM_READ,
        {"topic": "t", "endingOffsets": '{"t":"subscription:app"}'},
        ("endingOffsets names a subscription, which moves and is no end of a stream; give an id, an index or a time"),
    ),
    (
        Side.BATCH_READ,
        {"topic": "t", "maxOffsetsPerTrigger": "5"},
        'option "maxOffsetsPerTrigger" does not work in a batch read: a batch read has no triggers; remove it',
    ),
    (
        Side.READ,
        {"topic": "t", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
        "minOffsetsPerTrigger, 6, is more than maxOffsetsPerTrigger, 5; swap them",
    ),
    (
        Side.READ,
        {"topic": "t", "keyRanges": "4", "minPartitions": "8"},
        (
            "keyRanges keeps the rows of a key in one task, and minPartitions cuts partitions otherwise; "
            "give one of them"
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "keyHashRange": "0-9,5-7"},
        (
            'option keyHashRange="0-9,5-7" is not valid: 0-9 and 5-7 overlap; '
            'example: .option("keyHashRange", "0-16383,49152-65535")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "keyHashRange": "0-65536"},
        (
            'option keyHashRange="0-65536" is not valid: 0-65536 is no range of slots, which go from 0 to 65535; '
            'example: .option("keyHashRange", "0-16383,49152-65535")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "startingEventTime": "2026-02-01T00:00:00Z", "endingEventTime": "2026-01-01T00:00:00Z"},
        (
            "startingEventTime, 2026-02-01T00:00:00.000+00:00, is after endingEventTime, "
            "2026-01-01T00:00:00.000+00:00; swap them"
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "maxTriggerDelay": "5m"},
        (
            "maxTriggerDelay bounds the waiting for minOffsetsPerTrigger, which was not given; "
            'give .option("minOffsetsPerTrigger", "10000") too, or use a trigger with an interval'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "minOffsetsPerTrigger": "6", "maxTriggerDelay": "soon"},
        (
            'option maxTriggerDelay="soon" is not valid: it takes a span of time like 30s, 15m or 1h; '
            'example: .option("maxTriggerDelay", "5m")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "topicWeights": '{"t":0}'},
        (
            'option topicWeights="{"t":0}" is not valid: topic t takes a whole number from 1 to 1000; '
            """example: .option("topicWeights", '{"flights":3,"airlines":1}')"""
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "topicWeights": '{"u":2}'},
        (
            "option topicWeights names topic persistent://public/default/u, which this query does not read; "
            "it reads persistent://public/default/t"
        ),
    ),
    (
        Side.BATCH_READ,
        {"topic": "t", "startingOffsets": "latest"},
        "startingOffsets says latest, where a batch read finds nothing; use earliest, an id or an index",
    ),
    (
        Side.BATCH_READ,
        {"topic": "t", "endingOffsets": '{"t":{"0":-2}}'},
        "endingOffsets says earliest, so nothing would be read; use latest, an id or an index",
    ),
    (
        Side.READ,
        {"topic": "t", "minPartitions": "0"},
        (
            'option minPartitions="0" is not valid: it takes a whole number from 1 up; '
            'example: .option("minPartitions", "8")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "failOnDataLoss": "no"},
        (
            'option failOnDataLoss="no" is not valid: it takes one of true, false, fail, warn, quarantine; '
            'example: .option("failOnDataLoss", "false")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "admin.url": "http://host:8080"},
        "admin.url means nothing without service.url, as the embedded broker tells its own; remove it",
    ),
    (
        Side.READ,
        {"topic": "t", "service.url": "pulsar://host:6650", "admin.url": "host:8080"},
        (
            'option admin.url="host:8080" is not valid: it takes the address of an admin REST that starts with '
            'http:// or https://; example: .option("admin.url", "http://host:8080")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "failOnDataLoss": "quarantine"},
        (
            "failOnDataLoss=quarantine, and no quarantineDirectory says where to; give a folder: "
            '.option("quarantineDirectory", "/var/lib/losses")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "failOnDataLoss": "warn", "quarantineDirectory": "/tmp/losses"},
        'quarantineDirectory means nothing without quarantine; add .option("failOnDataLoss", "quarantine")',
    ),
    (
        Side.READ,
        {"topic": "t", "quarantineDirectory": "s3://bucket/losses"},
        (
            'option quarantineDirectory="s3://bucket/losses" is not valid: it takes a path that is mounted on the '
            "driver and the executors, not a URL; "
            'example: .option("quarantineDirectory", "/var/lib/losses")'
        ),
    ),
    (
        Side.READ,
        {},
        (
            "exactly one of the options topic, topics, assign, topicsPattern says what to read, and none were given; "
            'example: .option("topic", "flights")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "assign": '{"t":[0]}'},
        (
            "exactly one of the options topic, topics, assign, topicsPattern says what to read, and topic and assign "
            'were given; example: .option("topic", "flights")'
        ),
    ),
    (
        Side.READ,
        {"topics": "t", "subscribe": "t"},
        'options "topics" and "subscribe" mean the same; give only topics',
    ),
    (
        Side.READ,
        {"topic": "t", "serviceUrl": "pulsar://h:1", "service__url": "pulsar://h:1"},
        'options "serviceUrl" and "service.url" mean the same; give only service.url',
    ),
    (
        Side.READ,
        {"topic": "t", "subscribePattern": "t.*"},
        (
            "exactly one of the options topic, topics, assign, topicsPattern says what to read, and topic and "
            'topicsPattern were given; example: .option("topic", "flights")'
        ),
    ),
    (
        Side.READ,
        {"topicsPattern": "public/.*/x"},
        (
            "option topicsPattern=\"public/.*/x\" is not valid: topics pattern 'public/.*/x' does not name its "
            'namespaces: "*" at character 9 stands for more than some names; name them, as in public/(a|b)/.*; brokers '
            "list the topics of a namespace, and no namespaces; example: "
            '.option("topicsPattern", "persistent://public/(eu|us)/flights-.*")'
        ),
    ),
    (
        Side.READ,
        {"topicsPattern": "non-persistent://public/default/x.*"},
        (
            'option topicsPattern="non-persistent://public/default/x.*" is not valid: such topics store nothing that '
            'Spark could read; example: .option("topicsPattern", "persistent://public/(eu|us)/flights-.*")'
        ),
    ),
    (
        Side.BATCH_READ,
        {"topic": "t", "partitionDiscoveryIntervalMs": "1000"},
        ('option "partitionDiscoveryIntervalMs" does not work in a batch read: a batch read looks once; remove it'),
    ),
    (
        Side.READ,
        {"topic": "t", "service__url": "localhost:6650"},
        (
            'option service.url="localhost:6650" is not valid: it takes the address of a broker that starts with '
            "pulsar://, or pulsar+ssl:// for TLS; "
            'example: .option("service.url", "pulsar://host:6650")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "service__url": "pulsar://h:1", "data__dir": "/d"},
        "options service.url and data.dir were both given; data.dir is for the embedded broker; give one",
    ),
    (
        Side.READ,
        {"topic": "t", "columns": "key,vlaue"},
        (
            'option columns="key,vlaue" is not valid: there is no column vlaue; did you mean "value"?; '
            'example: .option("columns", "key,value,message_id")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "columns": "weather"},
        (
            'option columns="weather" is not valid: there is no column weather; there are key, value, topic, '
            "partition, offset, timestamp, timestampType, message_id, publish_time, event_time, properties, "
            "ordering_key, key_is_bytes, headers, producer_name, sequence_id, schema_version, replicated_from, "
            "redelivery_count, raw_value, bad_record, __key, __topic, __messageId, __publishTime, __eventTime, "
            "__messageProperties, and all; "
            'example: .option("columns", "key,value,message_id")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "assign": "t"},
        (
            'option assign="t" is not valid: it is not JSON (Expecting value at character 1); '
            """example: .option("assign", '{"flights":[0,2]}')"""
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "checkpointLocation": "/c"},
        (
            'option "checkpointLocation" is Spark\'s own, of a query that is written as a stream; '
            "give it after writeStream"
        ),
    ),
    (
        Side.BATCH_READ,
        {"topic": "t", "minPartitions": "9" * 4000 + "x"},
        (
            f'option minPartitions="{"9" * 200}..." is not valid: it takes a whole number from 1 up; '
            'example: .option("minPartitions", "8")'
        ),
    ),
    (
        Side.READ,
        {"topic": "t", "failOnDataLoss": "a\nb"},
        (
            'option failOnDataLoss="a\\nb" is not valid: it takes one of true, false, fail, warn, quarantine; '
            'example: .option("failOnDataLoss", "false")'
        ),
    ),
]


@pytest.mark.parametrize("option", ["operationTimeoutMs", "connectionTimeoutMs", "partitionDiscoveryIntervalMs"])
@pytest.mark.parametrize("text", [str(10**12 + 1), str(2**63 - 1), "9" * 400], ids=len)
def test_a_time_that_no_client_waits_for_is_refused_by_the_name_of_its_option(option: str, text: str) -> None:
    """Not by that of a setting of the client, nor because it is no float."""
    reading(topic="t", **{option: str(10**12)})
    with pytest.raises(ConfigError, match=f'option {option}="{text[:50]}.* is not valid: it takes at most '):
        reading(topic="t", **{option: text})


@pytest.mark.parametrize(
    "option", ["maxOffsetsPerTrigger", "minPartitions", "inputPartitions", "maxRecordsPerPartition"]
)
def test_a_count_is_at_most_the_largest_number_of_java(option: str) -> None:
    """What is larger is no number that Spark or a broker knows."""
    reading(topic="t", **{option: str(2**63 - 1)})
    with pytest.raises(ConfigError, match=f"option {option}=.* is not valid: it takes at most {2**63 - 1}"):
        reading(topic="t", **{option: str(2**63)})


@pytest.mark.parametrize(("side", "options", "text"), READ_ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_a_wrong_read_option_is_explained_in_one_line(side: Side, options: dict[str, str], text: str) -> None:
    """Each error says what is wrong with which value, and what to write instead."""
    with pytest.raises(ConfigError) as caught:
        reading(side, **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("latst", "it takes earliest, latest, a time (2026-01-01T00:00:00Z, or -1h), or subscription:NAME, or a JSON"),
        ("[1]", "it takes earliest, latest, a time"),
        ("-1y", "it takes earliest, latest, a time"),
        ("2026-01-01T00:00:00", "it has no time zone"),
        ("2026-13-01T00:00:00Z", "it takes milliseconds since 1970, a time like 2026-01-01T00:00:00Z, or"),
        ("subscription:", "subscription name '' is not valid"),
        ('{"flights":3}', "flights takes earliest, latest, a time"),
        ('{"flights":"5:7"}', "or an object of partitions"),
        ('{"flights":{"x":3}}', '"x" is not a partition number'),
        ('{"flights":{"0":-3}}', "-3 is no position"),
        ('{"flights":{"0":true}}', "true is no position"),
        ('{"flights":{"0":"5"}}', '"5" is no position'),
        ('{"flights"', "it is not JSON"),
        ('{"a/b":{"0":1}}', "topic name 'a/b' is not valid"),
        ('{"flights":{"0":9223372036854775808}}', "9223372036854775808 is no position"),
        ('{"flights":{"0":"9223372036854775808:0"}}', '"9223372036854775808:0" is no position'),
        ('{"flights":{"0":"5:7:3"}}', '"5:7:3" is of partition 3, not of 0'),
        ('{"flights":{"0":"5:7:3:2@44"}}', '"5:7:3:2@44" is of partition 3, not of 0'),
        ('{"flights":{"0":"5:7:0:2147483648"}}', '"5:7:0:2147483648" is no position'),
        ('{"flights":{"0":1,"0":2}}', 'it says two things of "0"'),
        ('{"flights":{"0":1,"00":2}}', 'it says two things of "persistent://public/default/flights[0]"'),
        (
            '{"flights":{"0":1},"public/default/flights":{"1":2}}',
            'it says two things of "persistent://public/default/flights"',
        ),
        pytest.param('{"a":' * 100_000, "it is nested too deep", id="deep"),
    ],
)
def test_a_wrong_position_is_explained(text: str, why: str) -> None:
    """The part of the text that is wrong is named."""
    with pytest.raises(ConfigError, match="startingOffsets") as caught:
        reading(topic="flights", startingOffsets=text)
    assert why in str(caught.value)


def test_positions_of_topics_that_are_not_read_are_refused() -> None:
    """A typing error in a topic name must not silently mean the default."""
    bound = reading(topic="flights", startingOffsets='{"flihgts":"earliest"}').starting
    with pytest.raises(ConfigError, match="names topic persistent://public/default/flihgts, which this query does not"):
        bound.check_named([TopicPartition(FLIGHTS, 0)])
    bound = reading(topic="flights", startingOffsetsByTimestamp='{"flights":{"7":1}}').starting
    with pytest.raises(ConfigError, match="startingOffsetsByTimestamp names partition 7"):
        bound.check_named([TopicPartition(FLIGHTS, 0)])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"flights":[0],"flights":[1]}', 'it says two things of "flights"'),
        (
            '{"flights":[0],"public/default/flights":[1]}',
            'it says two things of "persistent://public/default/flights"',
        ),
        ('{"flights":[]}', "topic flights takes a list of partition numbers"),
        pytest.param("[" * 100_000, "it is nested too deep", id="deep"),
    ],
)
def test_partitions_that_are_assigned_twice_are_refused(text: str, why: str) -> None:
    """Of two lists for one topic the first would not be read, and nobody would be told."""
    with pytest.raises(ConfigError, match="option assign=") as caught:
        reading(assign=text)
    assert why in str(caught.value)


def starting_ms(text: str) -> int:
    """What startingTimestamp says, in milliseconds, at midnight of New Year 2026."""
    said = reading(topic="t", startingTimestamp=text).starting.said_of(TopicPartition(FLIGHTS, 0))
    assert said is not None
    assert isinstance(said.point, Moment)
    return said.point.published_at(NEW_YEAR.ms)


def test_times_count_back_from_now() -> None:
    """In every unit, and never to before the beginning of time."""
    assert [NEW_YEAR.ms - starting_ms(text) for text in ("-5ms", "-2s", "-3m", "-1h", "-2d", "-1w")] == [
        5,
        2000,
        180_000,
        3_600_000,
        172_800_000,
        604_800_000,
    ]
    assert starting_ms("-999999999d") == 0


def test_times_are_milliseconds_or_have_a_zone() -> None:
    """A time without a zone would mean something else on every machine."""
    assert starting_ms("2026-01-01T00:00:00.001+01:00") == 1767222000001
    assert starting_ms("1767225600000") == 1767225600000
    assert starting_ms("2026-01-01T00:00:00Z") == 1767225600000
    with pytest.raises(ConfigError, match="no time zone"):
        reading(topic="t", startingTimestamp="2026-01-01T00:00:00")
    with pytest.raises(ConfigError, match=r'endingTimestamp="9223372036854775808" is not valid: .*too large'):
        reading(Side.BATCH_READ, topic="t", endingTimestamp="9223372036854775808")


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:00", "1960-01-01T00:00:00Z", "1970-01-01T00:00:00Z"])
def test_a_time_before_all_messages_is_the_beginning(text: str) -> None:
    """Brokers know no times before 1970, and no message is that old."""
    assert starting_ms(text) == 0


def test_what_pulsar_spark_calls_a_time_is_understood() -> None:
    """Under its names, with the same meaning."""
    options = reading(Side.BATCH_READ, topic="t", startingTime="5", endingTime="7")
    said = [bound.said_of(TopicPartition(FLIGHTS, 0)) for bound in (options.starting, options.ending)]
    assert said == [("startingTimestamp", Moment(5)), ("endingTimestamp", Moment(7))]


def test_a_list_of_topics_is_no_topic() -> None:
    """A stream would make a topic of that name, and wait for ever."""
    with pytest.raises(ConfigError, match=r'it takes one topic; read several with .option\("topics", "a,b"\)'):
        reading(path="a,b")


def test_a_data_directory_is_the_same_for_driver_and_executors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Executors have another working directory; and no folder is ever called ~."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert reading(topic="t", data__dir="pulsar").address.data_dir == str(tmp_path / "pulsar")
    assert reading(topic="t", data__dir="~/pulsar").address.data_dir == str(tmp_path / "home" / "pulsar")
    with pytest.raises(ConfigError, match=r"'s3://bucket/data' is a URL"):
        reading(topic="t", data__dir="s3://bucket/data")


def test_the_sink_takes_its_own_options_and_what_spark_adds() -> None:
    """Spark adds the checkpoint folder to the options of a streaming sink; to a batch it means nothing."""
    options = writing(topic="flights", compression="LZ4", batchingMaxMessages="10")
    assert options.topic == FLIGHTS
    assert options.writing == {"compression": "lz4", "batching_max_messages": 10}
    assert writing(topic="t", hashingScheme="boosthash", keyForm="Text").writing["hashing_scheme"] == "boost"
    with pytest.raises(ConfigError, match="it takes one of JavaStringHash, Murmur3_32Hash, BoostHash, GoStringHash; "):
        writing(topic="t", hashingScheme="md5")
    with pytest.raises(ConfigError) as caught:
        writing(topic="t", startingOffsets="earliest")
    assert str(caught.value) == 'option "startingOffsets" belongs to the source, not to the sink; remove it'
    write_options({"topic": "t", "checkpointLocation": "/c", "queryName": "q"}, Side.STREAM_WRITE, NO_ENVIRONMENT)
    with pytest.raises(ConfigError, match="give it after writeStream"):
        writing(topic="t", checkpointLocation="/c")


def test_an_unknown_option_is_answered_with_what_there_is_on_its_side() -> None:
    """A name of the other side would only lead to the next error; the other side's own names are still known."""
    with pytest.raises(ConfigError) as caught:
        writing(topic="t", acks="all")
    assert str(caught.value) == (
        'option "acks" is unknown; the options are service.url, data.dir, operationTimeoutMs, connectionTimeoutMs, '
        "tokenFile, token, authPluginClassName, authParams, tlsTrustCertsFilePath, tlsCertificateFilePath, "
        "tlsKeyFilePath, tlsHostnameVerificationEnable, tlsAllowInsecureConnection, useTls, "
        "topic, includeHeaders, columnNames, valueFormat, valueSchema, flattenValue, recordName, recordNamespace, "
        "keyFormat, keyForm, deliverAfterMs, hashingScheme, messageRoutingMode, batchingType, "
        "sendTimeoutMs, memoryLimitBytes, chunkingEnabled, chunkMaxMessageSize, compression, "
        "batchingMaxMessages, batchingMaxBytes, deliveryGuarantee, transactionalId, transactionTimeoutMs, "
        "onUnknownTransaction"
    )
    with pytest.raises(ConfigError, match="did you mean startingOffsets"):
        writing(topic="t", startingOffset="earliest")


def test_every_option_reads_its_own_example() -> None:
    """An example that does not work is worse than none."""
    for option in OPTIONS:
        option.parse(option.example)
    assert issubclass(ConfigError, UsageError)


def test_times_in_the_wrong_order_are_refused_as_times() -> None:
    """They were resolved first, and the error spoke of message ids that nobody had given."""
    with pytest.raises(ConfigError) as caught:
        reading(
            Side.BATCH_READ,
            topic="t",
            startingTimestamp="2026-01-01T00:00:00.001+01:00",
            endingTimestamp="1767222000000",
        )
    assert str(caught.value) == (
        "startingTimestamp, 2025-12-31T23:00:00.001+00:00, is after endingTimestamp, 2025-12-31T23:00:00.000+00:00; "
        "swap them"
    )
    with pytest.raises(ConfigError, match="startingTimestamp, 9223372036854775807, is after"):
        reading(Side.BATCH_READ, topic="t", startingTimestamp=str(2**63 - 1), endingTimestamp="0")
    reading(Side.BATCH_READ, topic="t", startingTimestamp="5", endingTimestamp="5")


@pytest.mark.parametrize("side", [Side.BATCH_READ, Side.STREAM_READ])
def test_a_topic_that_stores_nothing_is_not_read(side: Side) -> None:
    """One that exists "did not exist" on an Apache Pulsar, or its last message could not be had."""
    with pytest.raises(ConfigError) as caught:
        reading(side, topics="t,non-persistent://public/default/live")
    assert str(caught.value) == (
        "option topics names non-persistent://public/default/live, which stores nothing that Spark could read; "
        "read a persistent:// topic, or receive from this one with a client as messages come"
    )
    assert writing(topic="non-persistent://public/default/live").topic == "non-persistent://public/default/live"
